"""Read dates and times in conditions as numbers of days or of fractions of a second."""

import datetime as dt
import re
import zoneinfo
from fractions import Fraction

PER_SECOND = {"ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"{_DAY.pattern}(?:[ T][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}})?)?)?")


def as_day(text: str) -> Fraction:
    """Return the days from 1970-01-01 to a date such as 2024-01-31; a ValueError says what is wrong."""
    if not _DAY.fullmatch(text):
        raise ValueError(f"'{text}' is not a date; write one such as '2024-01-31'")
    try:
        return Fraction((dt.date.fromisoformat(text) - EPOCH.date()).days)
    except ValueError as error:
        raise ValueError(f"'{text}' is not a date ({error}); write one such as '2024-01-31'") from None


def as_moment(text: str, *, unit: str, zone: str | None) -> Fraction:
    """Return the units of time from 1970 to a moment such as 2024-01-31 18:30 in a time zone, by default UTC."""
    if not _MOMENT.fullmatch(text):
        raise ValueError(f"'{text}' is not a time; write one such as '2024-01-31' or '2024-01-31 18:30:00'")
    try:
        moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC if zone is None else zoneinfo.ZoneInfo(zone))
        since = moment - EPOCH
    except (ValueError, OverflowError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise ValueError(f"'{text}' is not a time in {zone or 'UTC'} ({error})") from None
    microseconds = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return Fraction(microseconds * PER_SECOND[unit], 10**6)
