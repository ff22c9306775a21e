//! The Gregorian calendar: dates and counts of days since 1970-01-01.

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// From 1.
    pub day: u32,
}

/// Days in 400 years, after which the calendar repeats.
const DAYS_OF_400_YEARS: i64 = 146_097;
/// From 0000-03-01, when the years counted here begin, to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;

impl Date {
    /// Returns a date if the calendar has it.
    pub fn new(year: i64, month: u32, day: u32) -> Option<Self> {
        let date = Date { year, month, day };
        // A day beyond the month becomes a day of the next month.
        ((1..=12).contains(&month) && day >= 1 && Self::of_days(date.days()) == date)
            .then_some(date)
    }

    /// Returns the days since 1970-01-01. Years are counted from March, so that a leap day ends its year.
    pub fn days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (cycle, year) = (year.div_euclid(400), year.rem_euclid(400));
        let month = (i64::from(self.month) + 9) % 12;
        let day = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        cycle * DAYS_OF_400_YEARS + year * 365 + year / 4 - year / 100 + day - DAYS_TO_1970
    }

    /// Returns the date this many days after 1970-01-01.
    pub fn of_days(days: i64) -> Self {
        let days = days + DAYS_TO_1970;
        let (cycle, day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let date_day = (day - (153 * month + 2) / 5 + 1) as u32;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Date {
            year: cycle * 400 + year + i64::from(month <= 2),
            month: month as u32,
            day: date_day,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_800_years_has_one_date_and_the_next_one_follows() {
        let mut before = Date::of_days(-200_000);
        for days in -199_999..100_000 {
            let date = Date::of_days(days);
            assert_eq!(date.days(), days);
            assert_eq!(Date::new(date.year, date.month, date.day), Some(date));
            let key = |it: Date| (it.year, it.month, it.day);
            assert!(key(before) < key(date), "{before:?} {date:?}");
            before = date;
        }
        assert_eq!(Date::of_days(0), Date { year: 1970, month: 1, day: 1 });
        assert_eq!(Date::of_days(17_167), Date { year: 2017, month: 1, day: 1 });
    }

    #[test]
    fn a_day_that_the_calendar_does_not_have_is_refused() {
        for (year, month, day) in
            [(2026, 2, 29), (2100, 2, 29), (2026, 13, 1), (2026, 0, 1), (2026, 4, 31), (2026, 1, 0)]
        {
            assert_eq!(Date::new(year, month, day), None, "{year}-{month}-{day}");
        }
        assert!(Date::new(2000, 2, 29).is_some() && Date::new(2024, 2, 29).is_some());
    }
}
