"""A light and a heavy reader of handwritten digits, trained on the spot.

The light one is a single linear layer. The heavy one is an ensemble of three
convolutional networks: tens of times the cost for an answer that is wrong a
seventh as often, which is the trade that escalation is about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from sklearn.datasets import load_digits
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Sequence

SIDE = 8
CLASSES = 10
BRIGHTEST = 16.0
LIGHT_EPOCHS = 12
HEAVY_EPOCHS = 5
BATCH = 32
ENSEMBLE = 3
CHANNELS = 48
LAYERS = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model makes of one image.

    Attributes:
        digit: The likeliest digit.
        confidence: The probability that the model gives it.
    """

    digit: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled image, its pixels row by row from 0 to 16."""

    pixels: tuple[int, ...]
    label: int


class DigitReader:
    """One or several networks whose probabilities are averaged."""

    def __init__(self, networks: Sequence[nn.Module], device: torch.device) -> None:
        """Take trained networks as they are, on the device where their weights lie."""
        self._networks = tuple(networks)
        self._device = device

    def read(self, pixels: Sequence[float]) -> Reading:
        """Read one image; returns only after the device has answered."""
        with torch.inference_mode():
            image = torch.tensor(pixels, dtype=torch.float32, device=self._device)
            confidence, digit = self._probabilities(_as_images(image)).max(dim=1)
            return Reading(int(digit.item()), float(confidence.item()))

    def digits(self, examples: Sequence[Example]) -> list[int]:
        """Read many images at once."""
        pixels, _ = _tensors(examples, self._device)
        with torch.inference_mode():
            return [int(digit) for digit in self._probabilities(_as_images(pixels)).argmax(dim=1).tolist()]

    def accuracy(self, examples: Sequence[Example]) -> float:
        """Share of the examples that are read correctly."""
        pixels, labels = _tensors(examples, self._device)
        with torch.inference_mode():
            digits = self._probabilities(_as_images(pixels)).argmax(dim=1)
        return float((digits == labels).double().mean().item())

    def _probabilities(self, images: torch.Tensor) -> torch.Tensor:
        each = [network(images).softmax(dim=1) for network in self._networks]
        return torch.stack(each).mean(dim=0)


@dataclass(frozen=True, slots=True)
class Models:
    """The two readers, and the examples that neither has seen.

    Attributes:
        on_gpu: Whether they run on a GPU.
    """

    light: DigitReader
    heavy: DigitReader
    unseen: tuple[Example, ...]
    on_gpu: bool


def choose_device() -> torch.device:
    """The first GPU where torch can use one, else the CPU."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def gpu_name(device: torch.device) -> str | None:
    """Product name of a GPU; None where the device is none."""
    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else None


def train(*, seed: int, device: torch.device, heavy_epochs: int = HEAVY_EPOCHS) -> Models:
    """Train both readers on half of scikit-learn's digits.

    Args:
        seed: Decides the split, the initial weights and the order of the batches.
        device: Where to train and, later, to serve.
        heavy_epochs: Passes over the training half for each heavy network. One is
            enough for tests that do not look at its accuracy: its cost stays.
    """
    # More threads than free cores make kernels this small many times slower, and while
    # serving they would blur what a call on the host costs.
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    training, unseen = _split(_examples(), generator)
    light = _light().to(device)
    _fit(light, training, epochs=LIGHT_EPOCHS, rate=0.02, generator=generator)
    heavy = [_heavy().to(device) for _ in range(ENSEMBLE)]
    for network in heavy:
        _fit(network, training, epochs=heavy_epochs, rate=0.01, generator=generator)
    return Models(DigitReader([light], device), DigitReader(heavy, device), unseen, device.type == "cuda")


def _examples() -> list[Example]:
    images, labels = load_digits(return_X_y=True)
    rows = zip(images.tolist(), labels.tolist(), strict=True)
    return [Example(tuple(int(pixel) for pixel in image), int(label)) for image, label in rows]


def _split(
    examples: list[Example], generator: torch.Generator
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    order = torch.randperm(len(examples), generator=generator).tolist()
    half = len(examples) // 2
    return tuple(examples[i] for i in order[:half]), tuple(examples[i] for i in order[half:])


def _light() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, CLASSES))


def _heavy() -> nn.Module:
    layers: list[nn.Module] = []
    for depth in range(LAYERS):
        layers += [
            nn.Conv2d(CHANNELS if depth else 1, CHANNELS, kernel_size=3, padding=1),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, CLASSES))


def _fit(
    network: nn.Module,
    examples: Sequence[Example],
    *,
    epochs: int,
    rate: float,
    generator: torch.Generator,
) -> None:
    device = next(network.parameters()).device
    pixels, labels = _tensors(examples, device)
    images = _as_images(pixels)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    steps = epochs * -(-len(examples) // BATCH)
    # The one-cycle schedule reaches in five epochs what a constant rate needs ten for.
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    network.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(examples), generator=generator).to(device).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()


def _tensors(examples: Sequence[Example], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    pixels = torch.tensor([e.pixels for e in examples], dtype=torch.float32, device=device)
    return pixels, torch.tensor([e.label for e in examples], device=device)


def _as_images(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels / BRIGHTEST).view(-1, 1, SIDE, SIDE)
