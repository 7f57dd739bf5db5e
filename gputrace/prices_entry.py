"""The tables of a price book: every complaint names the file, the row and the key."""

from __future__ import annotations

from datetime import date, datetime, time, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any, NoReturn

from gputrace.prices_rows import PriceBookError

# Active codes of ISO 4217, without those of funds, metals and tests: a misspelt currency would be one more.
_CODES = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF
    CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD
    HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD
    LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK
    PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS
    TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(_CODES.split())

_LARGEST = 10**9
_MOST_DECIMALS = 18
_NS = 1_000_000_000


class Entry:
    """One table of the file; every complaint names the file, the entry and the key."""

    def __init__(self, file: str, label: str, values: Any, known: tuple[str, ...]) -> None:
        self._prefix = f"{file}: {label}"
        if not isinstance(values, dict):
            raise PriceBookError(f"{self._prefix}: must be a table of keys and values")
        self._values = values
        for key in values:
            if key not in known:
                self.fail(key, f"is no known key; known: {', '.join(known)}")

    def fail(self, key: str, why: str) -> NoReturn:
        """Refuse the book because of a key."""
        raise PriceBookError(f"{self._prefix}: {key}: {why}")

    def get(self, key: str) -> Any:
        """Return a value as it is, `None` where the key is missing."""
        return self._values.get(key)

    def required(self, key: str) -> Any:
        """Return a value as it is."""
        if key not in self._values:
            self.fail(key, "is missing")
        return self._values[key]

    def text(self, key: str) -> str | None:
        """Return a text that is not empty, `None` where the key is missing."""
        value = self.get(key)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        return self.fail(key, f"{shown(value)} must be a text that is not empty")

    def choice(self, key: str, known: tuple[str, ...], default: str | None = None) -> str:
        """Return one of the known texts."""
        value = self.required(key) if default is None else self._values.get(key, default)
        if value not in known:
            self.fail(key, f"{shown(value)} must be one of {', '.join(known)}")
        return str(value)

    def currency(self, key: str) -> str:
        """Return a currency's code."""
        value = self.required(key)
        if not isinstance(value, str) or value not in CURRENCIES:
            self.fail(key, f"{shown(value)} must be a code of ISO 4217, such as USD")
        return value

    def number(self, key: str, *, positive: bool = False) -> Fraction:
        """Return a number exactly as it is written."""
        value = self.required(key)
        # Checked before it becomes a fraction: 1e999999999 would not fit into memory.
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or not _is_usable(value):
            self.fail(key, f"{shown(value)} must be a number from 0 to {_LARGEST:,}, without quotes")
        if positive and not value:
            self.fail(key, "must be more than 0")
        return Fraction(value)

    def whole(self, key: str) -> int:
        """Return a count."""
        value = self.required(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
            self.fail(key, f"{shown(value)} must be a whole number of at least 1")
        return value

    def day(self, key: str) -> date:
        """Return a date; of a moment the date."""
        value = self.required(key)
        if isinstance(value, datetime):
            return value.date()
        if isinstance(value, date):
            return value
        return self.fail(key, f"{shown(value)} must be a date, such as 2026-05-31, without quotes")

    def moment_ns(self, key: str) -> int | None:
        """Return Unix time, `None` where the key is missing."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, date):
            self.fail(key, f"{shown(value)} must be a date or time, such as 2026-05-31, without quotes")
        return unix_ns(value)


def _is_usable(value: int | Decimal) -> bool:
    if isinstance(value, int):
        return 0 <= value <= _LARGEST
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent >= -_MOST_DECIMALS and 0 <= value <= _LARGEST


def unix_ns(value: date) -> int:
    """Return Unix time; what names no zone is UTC, and a date is its first moment."""
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1_000


def shown(value: object) -> str:
    """Return a value as the file has it."""
    return str(value) if isinstance(value, Decimal) else repr(value)
