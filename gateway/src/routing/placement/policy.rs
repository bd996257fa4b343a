//! Placement policies: choice of a shard, and reasons for excluding others. Pure: the gateway and the simulation
//! (`make sim`) run the same code.
//!
//! Gateways see each other's placements only after the shards' watches have reported them. A policy that takes the emptiest
//! shard sends the placements of all gateways to the same shard meanwhile; `power-of-two` never gives a shard more than twice
//! its share.

use std::cmp::Ordering;
use std::fmt;

use fairlead_config::PlacementPolicy;

/// Relative difference in fill up to which two shards count as equally full; then the less busy one
/// gets the workspace. A busy shard therefore lags behind by at most this much.
const EQUAL_FILL_TOLERANCE: f64 = 0.01;

/// The state of a shard at the time of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'c> {
    /// The shard's name.
    pub(crate) name: &'c str,
    /// Whether the request's selector matches the shard's labels.
    pub(crate) selected: bool,
    /// Whether kcp's annotation excludes it from placement.
    pub(crate) cordoned: bool,
    /// Whether Fairlead's annotation excludes it from placement, because it is being drained.
    pub(crate) draining: bool,
    /// Whether the gateway can reach the shard.
    pub(crate) reachability: Reachability,
    /// Workspaces that the table shows.
    pub(crate) workspaces: u32,
    /// Workspaces placed by this gateway that the table does not show yet.
    pub(crate) reserved: u32,
    /// Workspaces placed recently by this gateway that the table shows.
    pub(crate) settled: u32,
    /// Weight relative to other shards; at least 1.
    pub(crate) weight: u32,
    /// Maximum number of workspaces.
    pub(crate) capacity: Option<u32>,
    /// Average number of requests in progress, as far as this gateway observes it.
    pub(crate) busy: f64,
}

/// Whether the gateway can reach a shard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reachability {
    /// The watches are open and connections can be opened.
    Reachable,
    /// The shard has never been read.
    NotRead,
    /// The shard has been read before, but cannot be reached now.
    Unreachable,
}

/// The reason for excluding a shard. If several apply, the first one in this order counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exclusion {
    /// The selector does not match.
    NotSelected,
    /// The shard is cordoned.
    Cordoned,
    /// The shard is being drained.
    Draining,
    /// The shard has never been read.
    NotRead,
    /// The shard cannot be reached.
    OutOfReach,
    /// The shard is at its capacity.
    Full,
    /// The shard will be at its capacity once the table shows the recent placements, unless some of them fail.
    Filling,
}

impl Exclusion {
    /// All reasons, in order.
    pub(crate) const ALL: [Self; 7] = [
        Self::NotSelected,
        Self::Cordoned,
        Self::Draining,
        Self::NotRead,
        Self::OutOfReach,
        Self::Full,
        Self::Filling,
    ];

    /// Whether the reason goes away without an administrator.
    pub(crate) fn is_temporary(self) -> bool {
        matches!(self, Self::NotRead | Self::OutOfReach | Self::Filling)
    }

    /// Whether the reason is the shard's capacity.
    pub(crate) fn is_capacity(self) -> bool {
        matches!(self, Self::Full | Self::Filling)
    }

    /// The value in metrics and in the status.
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

    /// Text for messages, after a number.
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

/// Number of excluded shards by reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Excluded([u32; Exclusion::ALL.len()]);

impl Excluded {
    fn add(&mut self, exclusion: Exclusion) {
        self.0[exclusion as usize] += 1;
    }

    /// Whether no shard is excluded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Whether some of the reasons go away without an administrator.
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
    /// Index of the chosen shard among the candidates.
    pub(crate) chosen: usize,
    /// The reason for the choice.
    pub(crate) reason: ChoiceReason,
    /// Number of fitting shards.
    pub(crate) fitting: usize,
    /// The excluded shards.
    pub(crate) excluded: Excluded,
}

/// The reason for the choice among the fitting shards. Other shards are given by their index among the candidates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChoiceReason {
    /// The chosen shard is the only one that fits.
    Only,
    /// Chosen at random.
    Random,
    /// The chosen shard is the emptiest.
    Emptiest,
    /// The emptier one of two chosen at random.
    EmptierThan(usize),
    /// The less busy one of two chosen at random that are equally full.
    LessBusyThan(usize),
}

/// Chooses a shard. `gateways` is the number of gateways that place workspaces at the same time. Linear in the number of
/// candidates.
///
/// # Errors
/// The reasons why no candidate fits.
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
        [only] => (only, ChoiceReason::Only),
        _ => match policy {
            PlacementPolicy::Random => {
                (choose_weighted(candidates, &fitting, None, random), ChoiceReason::Random)
            }
            PlacementPolicy::LeastWorkspaces => (emptiest(candidates, &fitting), ChoiceReason::Emptiest),
            PlacementPolicy::PowerOfTwo => better_of_two(candidates, &fitting, random),
        },
    };
    Ok(Decision { chosen, reason, fitting: fitting.len(), excluded })
}

impl Candidate<'_> {
    /// The reason for excluding the shard; `gateways` is the number of gateways that place workspaces at the same time.
    pub(crate) fn exclusion(&self, gateways: u32) -> Option<Exclusion> {
        let reasons = [
            (!self.selected, Exclusion::NotSelected),
            (self.cordoned, Exclusion::Cordoned),
            (self.draining, Exclusion::Draining),
            (self.reachability == Reachability::NotRead, Exclusion::NotRead),
            (self.reachability == Reachability::Unreachable, Exclusion::OutOfReach),
        ];
        let first_reason = reasons.into_iter().find(|(holds, _)| *holds).map(|(_, exclusion)| exclusion);
        first_reason.or_else(|| self.capacity_exclusion(gateways))
    }

    /// Each gateway uses an equal part of the free capacity that it sees. It assumes that the other gateways have placed as many
    /// workspaces as itself recently. Together they then never exceed the capacity, as long as their views are
    /// younger than half the time for which reservations are kept.
    fn capacity_exclusion(&self, gateways: u32) -> Option<Exclusion> {
        let gateways = u64::from(gateways.max(1));
        let room = u64::from(self.capacity?).saturating_sub(self.workspaces.into());
        let taken = gateways * (u64::from(self.reserved) + 1) + (gateways - 1) * u64::from(self.settled);
        match () {
            () if room < gateways => Some(Exclusion::Full),
            () if room < taken => Some(Exclusion::Filling),
            () => None,
        }
    }

    /// Fill relative to the weight, with one more workspace.
    fn fill(&self) -> f64 {
        f64::from(self.workspaces.saturating_add(self.reserved).saturating_add(1)) / f64::from(self.weight)
    }

    fn busy_share(&self) -> f64 {
        self.busy / f64::from(self.weight)
    }
}

/// Chooses one of the fitting shards, not `except`, at random, in proportion to the weights.
fn choose_weighted(
    candidates: &[Candidate<'_>],
    fitting: &[usize],
    except: Option<usize>,
    random: &mut fastrand::Rng,
) -> usize {
    let others = || fitting.iter().copied().filter(|place| Some(*place) != except);
    let weight = |place: usize| u64::from(candidates[place].weight);
    let mut number = random.u64(..others().map(weight).sum::<u64>().max(1));
    let chosen = others().find(|place| {
        let mine = number < weight(*place);
        number = number.saturating_sub(weight(*place));
        mine
    });
    chosen.unwrap_or(fitting[0])
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
) -> (usize, ChoiceReason) {
    let first = choose_weighted(candidates, fitting, None, random);
    let second = choose_weighted(candidates, fitting, Some(first), random);
    let (one, other) = (&candidates[first], &candidates[second]);
    let (one_fill, other_fill) = (one.fill(), other.fill());
    if (one_fill - other_fill).abs() > EQUAL_FILL_TOLERANCE * one_fill.max(other_fill) {
        return match one_fill < other_fill {
            true => (first, ChoiceReason::EmptierThan(second)),
            false => (second, ChoiceReason::EmptierThan(first)),
        };
    }
    match one.busy_share().total_cmp(&other.busy_share()) {
        Ordering::Less | Ordering::Equal => (first, ChoiceReason::LessBusyThan(second)),
        Ordering::Greater => (second, ChoiceReason::LessBusyThan(first)),
    }
}

impl Decision {
    /// The decision as text.
    pub(crate) fn explain(&self, candidates: &[Candidate<'_>]) -> String {
        let Candidate { workspaces, reserved, weight, .. } = candidates[self.chosen];
        let name = |place: usize| candidates[place].name;
        let mut text = format!("{workspaces} workspaces and {reserved} reserved");
        if weight != 1 {
            text.push_str(&format!(" at weight {weight}"));
        }
        text.push_str(&match self.reason {
            ChoiceReason::Only => ", and no other fits".to_owned(),
            ChoiceReason::Random => ", chosen at random".to_owned(),
            ChoiceReason::Emptiest => ", the emptiest".to_owned(),
            ChoiceReason::EmptierThan(other) => format!(", emptier than {}", name(other)),
            ChoiceReason::LessBusyThan(other) => format!(", as full as {} and no busier", name(other)),
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
        reachability: Reachability::Reachable,
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
    fn shards_are_excluded_with_a_reason() {
        for (candidate, gateways, expected) in [
            (PLAIN, 3, None),
            (Candidate { selected: false, cordoned: true, ..PLAIN }, 1, Some(Exclusion::NotSelected)),
            (Candidate { cordoned: true, draining: true, ..PLAIN }, 1, Some(Exclusion::Cordoned)),
            (
                Candidate { draining: true, reachability: Reachability::Unreachable, ..PLAIN },
                1,
                Some(Exclusion::Draining),
            ),
            (Candidate { reachability: Reachability::NotRead, ..PLAIN }, 1, Some(Exclusion::NotRead)),
            (
                Candidate { reachability: Reachability::Unreachable, ..with(9, 0, 0, 9) },
                1,
                Some(Exclusion::OutOfReach),
            ),
            // A single gateway has placed all workspaces: all free capacity can be used.
            (with(0, 0, 0, 0), 1, Some(Exclusion::Full)),
            (with(9, 0, 0, 10), 1, None),
            (with(9, 0, 9, 10), 1, None),
            (with(9, 1, 0, 10), 1, Some(Exclusion::Filling)),
            (with(10, 0, 0, 10), 1, Some(Exclusion::Full)),
            (with(12, 0, 0, 10), 1, Some(Exclusion::Full)),
            // Each of three gateways uses a third, and assumes that the others have placed as many as itself.
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
    fn temporary_exclusions_are_distinguished() {
        let kinds = |candidates: &[Candidate<'_>]| {
            let none = decide(PlacementPolicy::PowerOfTwo, candidates, 1, &mut fastrand::Rng::with_seed(1));
            let excluded = none.unwrap_err();
            (excluded.to_string(), excluded.is_temporary(), excluded.is_empty())
        };
        let cordoned = Candidate { cordoned: true, ..PLAIN };
        let unselected = Candidate { selected: false, ..PLAIN };
        let lost = Candidate { reachability: Reachability::Unreachable, ..PLAIN };
        for (candidates, text, is_temporary) in [
            (&[][..], "", false),
            (&[cordoned, unselected, cordoned], "1 not selected, 2 cordoned", false),
            (&[cordoned, lost], "1 cordoned, 1 out of reach", true),
            (&[with(1, 0, 0, 1), with(0, 1, 0, 1)], "1 full, 1 about to be full", true),
        ] {
            assert_eq!(kinds(candidates), (text.to_owned(), is_temporary, candidates.is_empty()));
        }
    }

    /// The policy's choice among shards with these workspaces, weights and loads, by name, and the text of the reason.
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
    fn of_two_shards_the_better_one_is_chosen_for_any_seed() {
        use PlacementPolicy::{LeastWorkspaces, PowerOfTwo};
        let both = [LeastWorkspaces, PowerOfTwo];
        for (policies, shards, expected) in [
            (&both[..], [("a", 1, 1, 9.0), ("b", 2, 1, 0.0)], "a"),
            (&both, [("a", 10, 1, 0.0), ("b", 15, 2, 0.0)], "b"),
            // Of two empty shards the larger one is chosen.
            (&both, [("a", 0, 1, 0.0), ("b", 0, 2, 0.0)], "b"),
            // Equally full: the less busy one, relative to the weight.
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
    fn weighted_choice_follows_weights_and_never_repeats() {
        let mut random = fastrand::Rng::with_seed(7);
        let of_weight = |name, weight| Candidate { name, weight, ..PLAIN };
        let candidates = [of_weight("a", 1), of_weight("b", 3), of_weight("c", 6)];
        let mut drawn = [0; 3];
        for _ in 0..10_000 {
            let first = choose_weighted(&candidates, &[0, 1, 2], None, &mut random);
            drawn[first] += 1;
            assert_ne!(choose_weighted(&candidates, &[0, 1, 2], Some(first), &mut random), first);
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
                "3 workspaces and 0 reserved, chosen at random; 2 of 2 fit",
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
