//! The table of ticks to 2030 against a second implementation, which knows the laws of five zones and walks through time;
//! and what is missed.

use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60;
const DAY: i64 = 1440;
const QUARTER: i64 = 15;

/// Days since 1970 of a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (y, m) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719_468
}

/// 0 = Sunday.
fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// The first such weekday on or behind a date.
fn first(year: i64, month: i64, day: i64, wanted: i64) -> i64 {
    let from = days(year, month, day);
    from + (wanted - weekday(from)).rem_euclid(7)
}

/// The last such weekday of a month of 30 (April) or 31 days.
fn last(year: i64, month: i64, length: i64, wanted: i64) -> i64 {
    first(year, month, length - 6, wanted)
}

/// What the law says: the winter offset, by how much the clocks go forward, and from when until when they do in a year, in
/// minutes of UTC. North: the first is before the second.
struct Law {
    zone: &'static str,
    winter: i64,
    forward: i64,
    summer: fn(i64) -> (i64, i64),
}

const LAWS: [Law; 5] = [
    Law {
        zone: "UTC",
        winter: 0,
        forward: 0,
        summer: |_| (0, 0),
    },
    // The last Sundays of March and of October, at 1:00 UTC.
    Law {
        zone: "Europe/Berlin",
        winter: 60,
        forward: 60,
        summer: |year| {
            let at = |month| last(year, month, 31, 0) * DAY + 60;
            (at(3), at(10))
        },
    },
    // The last Friday of April, at 0:00; the last Thursday of October, at 24:00.
    Law {
        zone: "Africa/Cairo",
        winter: 120,
        forward: 60,
        summer: |year| {
            let end = last(year, 10, 31, 4) + 1;
            (last(year, 4, 30, 5) * DAY - 120, end * DAY - 180)
        },
    },
    // Half an hour: the first Sunday of October, at 2:00, to the first Sunday of April, at 2:00.
    Law {
        zone: "Australia/Lord_Howe",
        winter: 630,
        forward: 30,
        summer: |year| {
            let from = first(year, 10, 1, 0) * DAY + 120 - 630;
            (from, first(year, 4, 1, 0) * DAY + 120 - 660)
        },
    },
    // The first Sunday behind 1 September, at 4:00 UTC, to that behind 1 April, at 3:00 UTC.
    Law {
        zone: "America/Santiago",
        winter: -240,
        forward: 60,
        summer: |year| {
            let from = first(year, 9, 2, 0) * DAY + 240;
            (from, first(year, 4, 2, 0) * DAY + 180)
        },
    },
];

/// The years of the table.
const FROM: i64 = 2026;
const TO: i64 = 2031;

impl Law {
    /// The wall clock at a minute of UTC.
    fn wall(&self, utc: i64) -> i64 {
        // Close to New Year no clock changes.
        let year = (FROM - 1..TO)
            .rev()
            .find(|year| days(*year, 1, 1) * DAY <= utc);
        let (from, until) = (self.summer)(year.unwrap());
        let is_summer = match from <= until {
            true => (from..until).contains(&utc),
            false => !(until..from).contains(&utc),
        };
        utc + self.winter + if is_summer { self.forward } else { 0 }
    }

    fn all() -> impl Iterator<Item = i64> {
        (days(FROM, 1, 1) * DAY..days(TO, 1, 1) * DAY).step_by(QUARTER as usize)
    }

    /// One time a day, on these weekdays: the first moment at which the wall clock has reached it.
    fn once(&self, time: i64, on: fn(i64) -> bool) -> Vec<i64> {
        let mut wanted = self.wall(days(FROM, 1, 1) * DAY).div_euclid(DAY) * DAY + time;
        let mut ticks = Vec::new();
        for utc in Self::all() {
            // A tick of the first day may have been before.
            while self.wall(utc) >= wanted {
                if on(weekday(wanted.div_euclid(DAY))) && utc > days(FROM, 1, 1) * DAY {
                    ticks.push(utc);
                }
                wanted += DAY;
            }
        }
        ticks
    }

    /// All moments at which the wall clock shows one of these minutes of a day.
    fn whenever(&self, shows: fn(i64) -> bool) -> Vec<i64> {
        let shown = |utc: &i64| shows(self.wall(*utc).rem_euclid(DAY));
        Self::all().skip(1).filter(shown).collect()
    }

    fn compare(&self, cron: &str, expected: &[i64]) {
        let timing = Timing::checked(cron, self.zone).unwrap();
        let begin = u64::try_from(days(FROM, 1, 1) * DAY * MINUTE * 1000).unwrap();
        let ticks: Vec<i64> = timing
            .all_after(begin)
            .map(|tick| i64::try_from(tick / 1000).unwrap() / MINUTE)
            .take_while(|minute| *minute < days(TO, 1, 1) * DAY)
            .collect();
        assert!(expected.len() > 200, "{cron}: {}", expected.len());
        for (at, (found, wanted)) in ticks.iter().zip(expected).enumerate() {
            let shown = |minute: i64| timing.local(u64::try_from(minute * MINUTE * 1000).unwrap());
            let [found, wanted] = [*found, *wanted].map(shown);
            assert_eq!(found, wanted, "{cron}, tick {at}");
        }
        assert_eq!(ticks.len(), expected.len(), "{cron} in {}", self.zone);
    }
}

#[test]
fn the_calendar_of_the_second_implementation_is_right() {
    assert_eq!(days(1970, 1, 1), 0);
    assert_eq!(days(2026, 11, 29), 20_786);
    assert_eq!(weekday(days(2026, 11, 29)), 0);
    // By the zone data of the operating system: when clocks change in UTC.
    let minutes = |(y, m, d): (i64, i64, i64), h: i64| days(y, m, d) * DAY + h * 60;
    for (law, year, from, until) in [
        (
            1,
            2027,
            minutes((2027, 3, 28), 1),
            minutes((2027, 10, 31), 1),
        ),
        (
            2,
            2030,
            minutes((2030, 4, 25), 22),
            minutes((2030, 10, 31), 21),
        ),
        (
            3,
            2028,
            minutes((2028, 9, 30), 15) + 30,
            minutes((2028, 4, 1), 15),
        ),
        (4, 2029, minutes((2029, 9, 2), 4), minutes((2029, 4, 8), 3)),
    ] {
        let law: &Law = &LAWS[law];
        assert_eq!((law.summer)(year), (from, until), "{}", law.zone);
    }
}

#[test]
fn a_time_of_the_day_comes_once_each_day_to_2030() {
    for law in &LAWS {
        for (hour, minute) in [(0, 0), (0, 30), (1, 45), (2, 0), (2, 30), (3, 0), (23, 30)] {
            let cron = format!("{minute} {hour} * * *");
            law.compare(&cron, &law.once(hour * 60 + minute, |_| true));
        }
        law.compare("15 0 * * FRI", &law.once(15, |day| day == 5));
        law.compare("30 2 * * SUN", &law.once(150, |day| day == 0));
    }
}

#[test]
fn several_times_of_the_day_come_whenever_the_clock_shows_them_to_2030() {
    for law in &LAWS {
        law.compare("0 * * * *", &law.whenever(|minute| minute % 60 == 0));
        law.compare(
            "30 2,14 * * *",
            &law.whenever(|minute| [150, 870].contains(&minute)),
        );
        law.compare(
            "*/30 0-2 * * *",
            &law.whenever(|minute| minute < 180 && minute % 30 == 0),
        );
    }
}

#[test]
fn the_table_of_daylight_saving_in_the_docs_is_true() {
    let berlin = |cron: &str, from: &str, count| {
        let timing = Timing::checked(cron, "Europe/Berlin").unwrap();
        let from: Timestamp = from.parse().unwrap();
        let from = u64::try_from(from.as_millisecond()).unwrap();
        let ticks = timing.all_after(from).take(count);
        let ticks = ticks.map(|tick| timing.local(tick)[..22].to_owned());
        ticks.collect::<Vec<_>>()
    };
    let (forward, back) = ("2027-03-27T12:00:00Z", "2027-10-30T12:00:00Z");
    assert_eq!(
        berlin("30 2 * * *", forward, 2),
        ["2027-03-28T03:00:00+02", "2027-03-29T02:30:00+02"]
    );
    assert_eq!(
        berlin("30 2 * * *", back, 2),
        ["2027-10-31T02:30:00+02", "2027-11-01T02:30:00+01"]
    );
    assert_eq!(
        berlin("30 2,14 * * *", forward, 2),
        ["2027-03-27T14:30:00+01", "2027-03-28T14:30:00+02"]
    );
    assert_eq!(
        berlin("30 2,14 * * *", back, 4)[1..],
        [
            "2027-10-31T02:30:00+02",
            "2027-10-31T02:30:00+01",
            "2027-10-31T14:30:00+01"
        ]
    );
}

fn every(cron: &str) -> Timing {
    Timing::checked(cron, "UTC").unwrap()
}

const HOUR_MS: u64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
/// A full hour.
const THEN: u64 = 1_800_000_000_000;

#[test]
fn a_week_down_publishes_what_catch_up_says() {
    let timing = every("0 * * * *");
    // On time: nothing is missed.
    let on_time = timing.plan(THEN, THEN + LATE_MS, CatchUp::None, 100);
    assert_eq!((on_time.publish, on_time.missed), (vec![THEN], 0));
    let now = THEN + WEEK_MS + 30 * 60_000;
    let last = THEN + WEEK_MS;
    for (catch_up, expected) in [
        (CatchUp::None, vec![]),
        (CatchUp::Last, vec![last]),
        (CatchUp::Some(2), vec![last - HOUR_MS, last]),
    ] {
        let plan = timing.plan(THEN, now, catch_up, 100);
        assert_eq!(plan.publish, expected);
        assert_eq!((plan.missed, plan.next), (7 * 24 + 1, Some(last + HOUR_MS)));
        assert_eq!(timing.after(plan.base), plan.next);
    }
    // More than a call takes: the next tick is the first that is left.
    let plan = timing.plan(THEN, now, CatchUp::Some(150), 100);
    assert_eq!((plan.publish.len(), plan.missed), (100, 169 - 50));
    assert_eq!(plan.next, Some(plan.publish[99] + HOUR_MS));
    let rest = timing.plan(plan.next.unwrap(), now, CatchUp::Some(150), 100);
    assert_eq!((rest.publish.len(), rest.missed), (50, 50));
}

#[test]
fn a_week_of_seconds_is_not_walked_through() {
    let plan = every("* * * * * *").plan(THEN, THEN + WEEK_MS, CatchUp::Last, 100);
    // The last missed one, and those of the last minute.
    assert_eq!((plan.publish.len(), plan.missed), (62, 1000));
    assert_eq!(plan.publish[0], THEN + WEEK_MS - LATE_MS - 1000);
    assert_eq!(plan.next, Some(THEN + WEEK_MS + 1000));
}

#[test]
fn what_is_wrong_is_named() {
    let error = |cron: &str, zone: &str| Timing::checked(cron, zone).unwrap_err().to_string();
    assert!(error("61 * * * *", "UTC").starts_with("`61 * * * *` is no cron expression"));
    assert!(error("* * * *", "UTC").contains("is no cron expression"));
    assert!(error("0 0 * * *", "Europe/Atlantis").contains("no time zone `Europe/Atlantis`"));
    assert_eq!(error("0 0 30 2 *", "UTC"), "`0 0 30 2 *` never comes");
}

proptest! {
    #[test]
    fn ticks_go_forward_and_a_look_at_any_time_finds_the_next(
        cron in proptest::sample::select(vec![
            "* * * * * *", "*/7 * * * *", "30 2 * * *", "0 0 * * *", "15,45 1-3 * * *", "0 12 1 * *", "@weekly",
        ]),
        law in 0..LAWS.len(),
        from in 1_767_000_000_000_u64..1_900_000_000_000,
        ahead in 0_u64..7_200_000,
    ) {
        let timing = Timing::checked(cron, LAWS[law].zone).unwrap();
        let ticks: Vec<u64> = timing.all_after(from).take(4).collect();
        prop_assert!(ticks.windows(2).all(|two| two[0] < two[1] && two[0] > from));
        let later = from + ahead;
        if let Some(next) = ticks.iter().find(|tick| **tick > later) {
            prop_assert_eq!(timing.after(later), Some(*next));
        }
    }

    #[test]
    fn each_tick_is_published_once_however_often_hosts_look(
        cron in proptest::sample::select(vec!["*/10 * * * * *", "* * * * *", "*/20 * * * *"]),
        looks in proptest::collection::vec(1_u64..200_000, 1..40),
        most in 1_usize..5,
    ) {
        let timing = every(cron);
        let (mut now, mut next) = (THEN, timing.after(THEN - 1).unwrap());
        let (mut published, mut missed) = (Vec::new(), 0);
        for look in looks {
            now += look;
            while next <= now {
                let plan = timing.plan(next, now, CatchUp::None, most);
                published.extend(plan.publish);
                missed += plan.missed;
                prop_assert!(plan.next.unwrap() > next);
                next = plan.next.unwrap();
                prop_assert_eq!(timing.after(plan.base), Some(next));
            }
        }
        let all: Vec<u64> = timing.all_after(THEN - 1).take_while(|tick| *tick <= now).collect();
        prop_assert!(published.windows(2).all(|two| two[0] < two[1]));
        prop_assert!(published.iter().all(|tick| all.contains(tick)));
        prop_assert_eq!(published.len() as u64 + missed, all.len() as u64);
    }
}
