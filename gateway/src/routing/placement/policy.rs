//! Which of several shards a workspace goes to, and why not the others. Pure: the gateway and the simulation
//! (`make sim`) run this very code.
//!
//! Gateways do not see each other's picks until the shards' watches bring them. What takes the emptiest shard would send
//! every gateway's picks of that moment to the same one; `power-of-two` never gives a shard more than twice its share.

use std::cmp::Ordering;
use std::fmt;

use fairlead_config::PlacementPolicy;

/// Shards whose fill differs by no more than this part of the larger one are as full as each other: the less busy one
/// gets the workspace. So a busy shard lags behind by this much and no more.
const AS_FULL: f64 = 0.01;

/// What is known of a shard when it is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'c> {
    /// Its name.
    pub(crate) name: &'c str,
    /// Whether the question's selector matches its labels.
    pub(crate) selected: bool,
    /// Nobody may be placed there, says kcp's mark.
    pub(crate) cordoned: bool,
    /// Nobody may be placed there, says ours: it is being emptied.
    pub(crate) draining: bool,
    /// Whether it can be heard.
    pub(crate) reach: EligibleShards,
    /// Workspaces that the table shows.
    pub(crate) workspaces: u32,
    /// Workspaces picked for it here that the table does not show yet.
    pub(crate) reserved: u32,
    /// Workspaces picked for it here lately that the table shows.
    pub(crate) settled: u32,
    /// Its share beside that of others; at least 1.
    pub(crate) weight: u32,
    /// The most workspaces that it may have.
    pub(crate) capacity: Option<u32>,
    /// Requests that it has in hand on average, as far as this gateway sees.
    pub(crate) busy: f64,
}

/// Whether a shard can be heard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EligibleShards {
    /// Its watches are open and connections to it can be opened.
    Heard,
    /// It was never read.
    NotRead,
    /// It was read before, and is silent now.
    Lost,
}

/// Why a shard is not to be had. Of several reasons the first one here counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exclusion {
    /// The selector does not match it.
    NotSelected,
    /// It is cordoned.
    Cordoned,
    /// It is being emptied.
    Draining,
    /// It was never read.
    NotRead,
    /// It cannot be reached.
    OutOfReach,
    /// It has as many workspaces as it may have.
    Full,
    /// It will have, once the table shows what was picked a moment ago, or some of that comes to nothing.
    Filling,
}

impl Exclusion {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 7] = [
        Self::NotSelected,
        Self::Cordoned,
        Self::Draining,
        Self::NotRead,
        Self::OutOfReach,
        Self::Full,
        Self::Filling,
    ];

    /// Whether it passes although nobody does anything about the shard.
    pub(crate) fn is_temporary(self) -> bool {
        matches!(self, Self::NotRead | Self::OutOfReach | Self::Filling)
    }

    /// Whether it is about how many workspaces there are.
    pub(crate) fn is_about_room(self) -> bool {
        matches!(self, Self::Full | Self::Filling)
    }

    /// The word for it in metrics and in the status.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotSelected => "not_selected",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::NotRead => "not_read",
            Self::OutOfReach => "out_of_reach",
            Self::Full => "full",
            Self::Filling => "filling",
        }
    }

    /// For people, after a number.
    fn text(self) -> &'static str {
        match self {
            Self::NotSelected => "not selected",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::NotRead => "not read yet",
            Self::OutOfReach => "out of reach",
            Self::Full => "full",
            Self::Filling => "about to be full",
        }
    }
}

/// How many shards are not to be had, by reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Excluded([u32; Exclusion::ALL.len()]);

impl Excluded {
    fn add(&mut self, exclusion: Exclusion) {
        self.0[exclusion as usize] += 1;
    }

    /// Whether none is excluded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Whether some of them may be had later although nobody does anything about it.
    pub(crate) fn is_temporary(&self) -> bool {
        Exclusion::ALL.iter().any(|one| one.is_temporary() && self.0[*one as usize] > 0)
    }
}

/// `2 not selected, 1 cordoned`.
impl fmt::Display for Excluded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Exclusion::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        for (place, (exclusion, count)) in counts.enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(formatter, "{comma}{count} {}", exclusion.text())?;
        }
        Ok(())
    }
}

/// The shard that gets a workspace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decision {
    /// Its place among the candidates.
    pub(crate) chosen: usize,
    /// Why this one.
    pub(crate) reason: PickReason,
    /// How many shards fit.
    pub(crate) fitting: usize,
    /// Why others did not.
    pub(crate) excluded: Excluded,
}

/// Why a shard was chosen of those that fit. Others are named by their place among the candidates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PickReason {
    /// No other fits.
    Only,
    /// By lot.
    Lot,
    /// None is emptier.
    Emptiest,
    /// Of two drawn by lot it is the emptier one.
    EmptierThan(usize),
    /// Of two drawn by lot, as full as each other, it is the less busy one.
    LessBusyThan(usize),
}

/// Decides. `gateways` is how many pick beside each other. Linear in the number of candidates.
///
/// # Errors
/// Why no candidate fits.
pub(crate) fn decide(
    policy: PlacementPolicy,
    candidates: &[Candidate<'_>],
    gateways: u32,
    random: &mut fastrand::Rng,
) -> Result<Decision, Excluded> {
    let mut excluded = Excluded::default();
    let mut fitting = Vec::with_capacity(candidates.len());
    for (place, candidate) in candidates.iter().enumerate() {
        match candidate.exclusion(gateways) {
            Some(exclusion) => excluded.add(exclusion),
            None => fitting.push(place),
        }
    }
    let (chosen, reason) = match fitting[..] {
        [] => return Err(excluded),
        [only] => (only, PickReason::Only),
        _ => match policy {
            PlacementPolicy::Random => (by_lot(candidates, &fitting, None, random), PickReason::Lot),
            PlacementPolicy::LeastWorkspaces => (emptiest(candidates, &fitting), PickReason::Emptiest),
            PlacementPolicy::PowerOfTwo => better_of_two(candidates, &fitting, random),
        },
    };
    Ok(Decision { chosen, reason, fitting: fitting.len(), excluded })
}

impl Candidate<'_> {
    /// Why it is not to be had; `gateways` is how many pick beside each other.
    pub(crate) fn exclusion(&self, gateways: u32) -> Option<Exclusion> {
        let marks = [
            (!self.selected, Exclusion::NotSelected),
            (self.cordoned, Exclusion::Cordoned),
            (self.draining, Exclusion::Draining),
            (self.reach == EligibleShards::NotRead, Exclusion::NotRead),
            (self.reach == EligibleShards::Lost, Exclusion::OutOfReach),
        ];
        let marked = marks.into_iter().find(|(holds, _)| *holds).map(|(_, exclusion)| exclusion);
        marked.or_else(|| self.lack_of_room(gateways))
    }

    /// Each gateway takes an equal part of the room that it sees. What it has picked itself lately says how much the
    /// others may have picked unseen; with this, together they never take more than there is, as long as their view is
    /// younger than half the time for which picks are remembered.
    fn lack_of_room(&self, gateways: u32) -> Option<Exclusion> {
        let gateways = u64::from(gateways.max(1));
        let room = u64::from(self.capacity?).saturating_sub(self.workspaces.into());
        let taken = gateways * (u64::from(self.reserved) + 1) + (gateways - 1) * u64::from(self.settled);
        match () {
            () if room < gateways => Some(Exclusion::Full),
            () if room < taken => Some(Exclusion::Filling),
            () => None,
        }
    }

    /// How full it would be, beside others, with one more workspace.
    fn fill(&self) -> f64 {
        f64::from(self.workspaces.saturating_add(self.reserved).saturating_add(1)) / f64::from(self.weight)
    }

    fn busy_share(&self) -> f64 {
        self.busy / f64::from(self.weight)
    }
}

/// One of those that fit but `besides`, as likely as its weight says.
fn by_lot(
    candidates: &[Candidate<'_>],
    fitting: &[usize],
    besides: Option<usize>,
    random: &mut fastrand::Rng,
) -> usize {
    let others = || fitting.iter().copied().filter(|place| Some(*place) != besides);
    let weight = |place: usize| u64::from(candidates[place].weight);
    let mut lot = random.u64(..others().map(weight).sum::<u64>().max(1));
    let drawn = others().find(|place| {
        let mine = lot < weight(*place);
        lot = lot.saturating_sub(weight(*place));
        mine
    });
    drawn.unwrap_or(fitting[0])
}

fn emptiest(candidates: &[Candidate<'_>], fitting: &[usize]) -> usize {
    let order = |one: &usize, other: &usize| {
        let (one, other) = (&candidates[*one], &candidates[*other]);
        one.fill().total_cmp(&other.fill()).then_with(|| one.name.cmp(other.name))
    };
    fitting.iter().copied().min_by(order).unwrap_or(fitting[0])
}

fn better_of_two(
    candidates: &[Candidate<'_>],
    fitting: &[usize],
    random: &mut fastrand::Rng,
) -> (usize, PickReason) {
    let first = by_lot(candidates, fitting, None, random);
    let second = by_lot(candidates, fitting, Some(first), random);
    let (one, other) = (&candidates[first], &candidates[second]);
    let (one_fill, other_fill) = (one.fill(), other.fill());
    if (one_fill - other_fill).abs() > AS_FULL * one_fill.max(other_fill) {
        return match one_fill < other_fill {
            true => (first, PickReason::EmptierThan(second)),
            false => (second, PickReason::EmptierThan(first)),
        };
    }
    match one.busy_share().total_cmp(&other.busy_share()) {
        Ordering::Less | Ordering::Equal => (first, PickReason::LessBusyThan(second)),
        Ordering::Greater => (second, PickReason::LessBusyThan(first)),
    }
}

impl Decision {
    /// The decision for people.
    pub(crate) fn explain(&self, candidates: &[Candidate<'_>]) -> String {
        let Candidate { workspaces, reserved, weight, .. } = candidates[self.chosen];
        let name = |place: usize| candidates[place].name;
        let mut text = format!("{workspaces} workspaces and {reserved} reserved");
        if weight != 1 {
            text.push_str(&format!(" at weight {weight}"));
        }
        text.push_str(&match self.reason {
            PickReason::Only => ", and no other fits".to_owned(),
            PickReason::Lot => ", by lot".to_owned(),
            PickReason::Emptiest => ", the emptiest".to_owned(),
            PickReason::EmptierThan(other) => format!(", emptier than {}", name(other)),
            PickReason::LessBusyThan(other) => format!(", as full as {} and no busier", name(other)),
        });
        let all = candidates.len();
        text.push_str(&format!("; {} of {all} fit", self.fitting));
        if !self.excluded.is_empty() {
            text.push_str(&format!(" ({})", self.excluded));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const PLAIN: Candidate<'_> = Candidate {
        name: "a",
        selected: true,
        cordoned: false,
        draining: false,
        reach: EligibleShards::Heard,
        workspaces: 0,
        reserved: 0,
        settled: 0,
        weight: 1,
        capacity: None,
        busy: 0.0,
    };

    fn with(workspaces: u32, reserved: u32, settled: u32, capacity: u32) -> Candidate<'static> {
        Candidate { workspaces, reserved, settled, capacity: Some(capacity), ..PLAIN }
    }

    #[test]
    fn why_a_shard_is_not_to_be_had() {
        for (candidate, gateways, expected) in [
            (PLAIN, 3, None),
            (Candidate { selected: false, cordoned: true, ..PLAIN }, 1, Some(Exclusion::NotSelected)),
            (Candidate { cordoned: true, draining: true, ..PLAIN }, 1, Some(Exclusion::Cordoned)),
            (
                Candidate { draining: true, reach: EligibleShards::Lost, ..PLAIN },
                1,
                Some(Exclusion::Draining),
            ),
            (Candidate { reach: EligibleShards::NotRead, ..PLAIN }, 1, Some(Exclusion::NotRead)),
            (Candidate { reach: EligibleShards::Lost, ..with(9, 0, 0, 9) }, 1, Some(Exclusion::OutOfReach)),
            // One gateway knows of all picks: what is left is left.
            (with(0, 0, 0, 0), 1, Some(Exclusion::Full)),
            (with(9, 0, 0, 10), 1, None),
            (with(9, 0, 9, 10), 1, None),
            (with(9, 1, 0, 10), 1, Some(Exclusion::Filling)),
            (with(10, 0, 0, 10), 1, Some(Exclusion::Full)),
            (with(12, 0, 0, 10), 1, Some(Exclusion::Full)),
            // Of three each takes its part, and takes the others to have picked what it has picked.
            (with(7, 0, 0, 10), 3, None),
            (with(8, 0, 0, 10), 3, Some(Exclusion::Full)),
            (with(4, 1, 0, 10), 3, None),
            (with(5, 1, 0, 10), 3, Some(Exclusion::Filling)),
            (with(5, 0, 1, 10), 3, None),
            (with(6, 0, 1, 10), 3, Some(Exclusion::Filling)),
        ] {
            assert_eq!(candidate.exclusion(gateways), expected, "{candidate:?} of {gateways}");
        }
    }

    #[test]
    fn what_passes_by_itself_is_told_from_what_does_not() {
        let kinds = |candidates: &[Candidate<'_>]| {
            let none = decide(PlacementPolicy::PowerOfTwo, candidates, 1, &mut fastrand::Rng::with_seed(1));
            let excluded = none.unwrap_err();
            (excluded.to_string(), excluded.is_temporary(), excluded.is_empty())
        };
        let cordoned = Candidate { cordoned: true, ..PLAIN };
        let unselected = Candidate { selected: false, ..PLAIN };
        let lost = Candidate { reach: EligibleShards::Lost, ..PLAIN };
        for (candidates, text, is_temporary) in [
            (&[][..], "", false),
            (&[cordoned, unselected, cordoned], "1 not selected, 2 cordoned", false),
            (&[cordoned, lost], "1 cordoned, 1 out of reach", true),
            (&[with(1, 0, 0, 1), with(0, 1, 0, 1)], "1 full, 1 about to be full", true),
        ] {
            assert_eq!(kinds(candidates), (text.to_owned(), is_temporary, candidates.is_empty()));
        }
    }

    /// The policy's choice among shards with these workspaces, weights and loads, by name, and its reason.
    fn chosen(policy: PlacementPolicy, shards: &[(&str, u32, u32, f64)], seed: u64) -> (String, String) {
        let candidates: Vec<Candidate<'_>> = shards
            .iter()
            .map(|(name, workspaces, weight, busy)| Candidate {
                name,
                workspaces: *workspaces,
                weight: *weight,
                busy: *busy,
                ..PLAIN
            })
            .collect();
        let decision = decide(policy, &candidates, 1, &mut fastrand::Rng::with_seed(seed)).unwrap();
        (candidates[decision.chosen].name.to_owned(), decision.explain(&candidates))
    }

    #[test]
    fn of_two_shards_the_better_one_is_taken_whatever_the_lot() {
        use PlacementPolicy::{LeastWorkspaces, PowerOfTwo};
        let both = [LeastWorkspaces, PowerOfTwo];
        for (policies, shards, expected) in [
            (&both[..], [("a", 1, 1, 9.0), ("b", 2, 1, 0.0)], "a"),
            (&both, [("a", 10, 1, 0.0), ("b", 15, 2, 0.0)], "b"),
            // With nobody there yet, the larger one comes first.
            (&both, [("a", 0, 1, 0.0), ("b", 0, 2, 0.0)], "b"),
            // As full as each other: the less busy one, by weight.
            (&both[1..], [("a", 1000, 1, 2.0), ("b", 1001, 1, 1.0)], "b"),
            (&both[1..], [("a", 1000, 1, 2.0), ("b", 2001, 2, 3.0)], "b"),
            (&both[1..], [("a", 1000, 1, 2.0), ("b", 1020, 1, 1.0)], "a"),
            (&both[..1], [("a", 1000, 1, 2.0), ("b", 1001, 1, 1.0)], "a"),
            (&both[..1], [("b", 5, 1, 0.0), ("a", 5, 1, 0.0)], "a"),
        ] {
            for policy in policies {
                for seed in 0..20 {
                    assert_eq!(chosen(*policy, &shards, seed).0, expected, "{policy} {shards:?}");
                }
            }
        }
    }

    #[test]
    fn the_lot_obeys_weights_and_never_draws_one_twice() {
        let mut random = fastrand::Rng::with_seed(7);
        let of_weight = |name, weight| Candidate { name, weight, ..PLAIN };
        let candidates = [of_weight("a", 1), of_weight("b", 3), of_weight("c", 6)];
        let mut drawn = [0; 3];
        for _ in 0..10_000 {
            let first = by_lot(&candidates, &[0, 1, 2], None, &mut random);
            drawn[first] += 1;
            assert_ne!(by_lot(&candidates, &[0, 1, 2], Some(first), &mut random), first);
        }
        for (count, expected) in drawn.into_iter().zip([1000, 3000, 6000]) {
            assert!(i32::abs_diff(count, expected) < 200, "{drawn:?}");
        }
    }

    #[test]
    fn a_decision_explains_itself() {
        for (policy, shards, expected) in [
            (
                PlacementPolicy::Random,
                &[("a", 3, 1, 0.0)][..],
                "3 workspaces and 0 reserved, and no other fits; 1 of 1 fit",
            ),
            (
                PlacementPolicy::Random,
                &[("a", 3, 1, 0.0), ("a", 3, 1, 0.0)],
                "3 workspaces and 0 reserved, by lot; 2 of 2 fit",
            ),
            (
                PlacementPolicy::LeastWorkspaces,
                &[("a", 3, 4, 0.0), ("b", 3, 1, 0.0)],
                "3 workspaces and 0 reserved at weight 4, the emptiest; 2 of 2 fit",
            ),
            (
                PlacementPolicy::PowerOfTwo,
                &[("a", 3, 1, 0.0), ("b", 4, 1, 0.0)],
                "3 workspaces and 0 reserved, emptier than b; 2 of 2 fit",
            ),
            (
                PlacementPolicy::PowerOfTwo,
                &[("a", 3, 1, 0.0), ("b", 3, 1, 1.0)],
                "3 workspaces and 0 reserved, as full as b and no busier; 2 of 2 fit",
            ),
        ] {
            assert_eq!(chosen(policy, shards, 1).1, expected);
        }
        let cordoned = Candidate { cordoned: true, ..PLAIN };
        let candidates = [PLAIN, cordoned, with(0, 2, 0, 1)];
        let decision =
            decide(PlacementPolicy::Random, &candidates, 1, &mut fastrand::Rng::with_seed(1)).unwrap();
        assert_eq!(
            decision.explain(&candidates),
            "0 workspaces and 0 reserved, and no other fits; 1 of 3 fit (1 cordoned, 1 about to be full)"
        );
    }
}
