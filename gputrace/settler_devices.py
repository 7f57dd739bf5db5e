"""The devices of this process: those on which it times calls, and those of which it hears afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputrace.accounts import EventAccount, ReportedAccount, SharedAccount
from gputrace.devices.reported import LATEST_NS, ReportedDevice, Told

if TYPE_CHECKING:
    from gputrace.accounts import Account
    from gputrace.devices.base import EventDevice, Slot
    from gputrace.following import Followed
    from gputrace.hardware import Hardware

#: An interval was told of a device on which this process times calls itself; and the other way round.
DEVICE_TIMED = "device_timed"
DEVICE_REPORTED = "device_reported"


def is_told(followed: Followed) -> bool:
    """Tell whether a call was told afterwards, and waits until no other can be told before it."""
    return isinstance(followed.call.timer, Told)


class Devices:
    """Their accounts, each opened when the device is first used.

    Args:
        accounts: By ``hw.id``; those that are opened are added.
        hardware: The node's GPUs, None where this process counts alone.
    """

    def __init__(self, accounts: dict[Any, Account], hardware: Hardware | None) -> None:
        self._accounts = accounts
        self._hardware = hardware
        self._reported: dict[Account, ReportedDevice] = {}

    def timed(self, slot: Slot) -> Account | None:
        """Return the account of a device that times a call, None where its time is told afterwards."""
        device: EventDevice = slot.device
        account = self._accounts.get(device.id)
        if account is None:
            if self._hardware is None:
                account = EventAccount(device)
            else:
                account = SharedAccount(device)
                self._hardware.declare(account)
            self._accounts[device.id] = account
        return None if account in self._reported else account

    def told(self, told: Told, now_ns: int) -> Account | None:
        """Return the account of a device of which an interval was told, None where calls are timed on it.

        Args:
            told: Names it.
            now_ns: Up to here the node takes it that this process held nothing there, if it is new.
        """
        account = self._accounts.get(told.hardware_id)
        if account is None:
            device = ReportedDevice(told.hardware_id)
            if self._hardware is None:
                account = EventAccount(device)
            else:
                account = ReportedAccount(device, now_ns)
                self._hardware.declare(account)
            self._accounts[device.id] = account
            self._reported[account] = device
        return account if account in self._reported else None

    def await_more(self, *, more: bool) -> None:
        """Let time become final late, so that more intervals can come; or at once, where none will."""
        for device in self._reported.values():
            device.mapping_error_ns = LATEST_NS if more else 0
