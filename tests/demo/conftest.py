from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gputrace.demo.models import Models


@pytest.fixture(scope="session")
def models() -> Models:
    """The models as the demo serves them: some seconds, so once for all tests."""
    from gputrace.demo.models import choose_device, train

    return train(seed=0, device=choose_device())
