"""What escalation saves where whole replicas are paid for, busy or not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provision:
    """Replicas that run, and those that always-heavy would need.

    Attributes:
        light: Replicas of the light model.
        heavy: Replicas of the heavy model beside it.
        always_heavy: Replicas of the heavy model that would serve everything.
        light_price: Price of a light replica, an hour.
        heavy_price: Price of a heavy replica, an hour.
    """

    light: int
    heavy: int
    always_heavy: int
    light_price: float
    heavy_price: float

    @property
    def cascade_cost(self) -> float:
        """Price of what runs, an hour."""
        return self.light * self.light_price + self.heavy * self.heavy_price

    @property
    def always_heavy_cost(self) -> float:
        """Price of what always-heavy would need, an hour."""
        return self.always_heavy * self.heavy_price

    @property
    def savings_frac(self) -> float | None:
        """Part of always-heavy's price that is saved; `None` where that is nothing."""
        whole = self.always_heavy_cost
        return 1 - self.cascade_cost / whole if whole else None

    def in_words(self) -> str:
        """Return what follows, in a sentence."""
        saved = self.savings_frac
        prices = f"{self.cascade_cost:,.2f} an hour against {self.always_heavy_cost:,.2f} for always-heavy"
        if saved is None:
            return "Provisioned: always-heavy would cost nothing, so nothing can be saved."
        if self.heavy >= self.always_heavy:
            return (
                f"Provisioned: {prices}. As many heavy replicas run as always-heavy would need, and they are "
                "paid whether they are asked or not: nothing is saved at this load."
            )
        verb = "saves" if saved >= 0 else "loses"
        return f"Provisioned: {prices}: {verb} {abs(saved):.0%}, whatever single requests cost."
