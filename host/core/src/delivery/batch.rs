//! The outcomes of a batch.
//!
//! If a call with several messages faults, it is not known which message caused it. So the batch is
//! halved until the faulting message runs by itself. Only that message is charged. The others run again
//! with their halves, uncharged: they start at most once more at each halving.

use std::ops::Range;

use super::outcome::{Fault, FaultKind, Outcome};

/// The parts of a batch that are still to be run, in the order of the batch.
#[derive(Clone, Debug)]
pub struct Pieces {
    /// The next one last.
    left: Vec<Range<usize>>,
}

impl Pieces {
    /// A batch of this many messages, none of which has run.
    pub fn of(messages: usize) -> Self {
        let mut left = Vec::new();
        if messages > 0 {
            left.push(0..messages);
        }
        Self { left }
    }

    /// Take the next piece. It is never empty.
    pub fn next_piece(&mut self) -> Option<Range<usize>> {
        self.left.pop()
    }

    /// The outcomes of the messages of this piece, after a call with them. `None`: the piece faulted,
    /// and its halves come next.
    ///
    /// A wrong number of outcomes is a fault. A missing instance is not a fault of any message: the
    /// piece does not run again.
    pub fn judge(
        &mut self,
        piece: Range<usize>,
        answer: Result<Vec<Outcome>, Fault>,
    ) -> Option<Vec<Outcome>> {
        let messages = piece.len();
        let fault = match answer {
            Ok(outcomes) if outcomes.len() == messages => return Some(outcomes),
            Ok(outcomes) => {
                let detail = format!("{} outcomes for {messages} messages", outcomes.len());
                Fault::new(FaultKind::BadOutcome, detail)
            }
            Err(fault) => fault,
        };
        if messages <= 1 || fault.kind == FaultKind::Instantiation {
            return Some(vec![Outcome::Fault(fault); messages]);
        }
        let middle = piece.start + messages.div_ceil(2);
        self.left.push(middle..piece.end);
        self.left.push(piece.start..middle);
        None
    }
}

/// How often a message starts for one attempt at most, in a batch of this many messages: once, and
/// once more at each halving.
pub fn starts_max(messages: usize) -> u32 {
    1 + messages.max(1).next_power_of_two().ilog2()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trap() -> Fault {
        Fault::new(FaultKind::Trap, "poison")
    }

    /// The answer of a handler to a piece in which these messages are poison.
    fn call(piece: &Range<usize>, poison: &[Poison]) -> Result<Vec<Outcome>, Fault> {
        let mut outcomes = Vec::new();
        for message in piece.clone() {
            match poison[message] {
                Poison::None => outcomes.push(Outcome::Drop(Some(message.to_string()))),
                Poison::Traps => return Err(trap()),
                Poison::Swallows => {}
                Poison::Repeats => outcomes.extend([Outcome::Ack, Outcome::Ack]),
            }
        }
        Ok(outcomes)
    }

    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    enum Poison {
        None,
        Traps,
        Swallows,
        Repeats,
    }

    /// Run a batch to its end: the outcome and the starts of each message.
    fn run(
        messages: usize,
        mut call: impl FnMut(&Range<usize>) -> Result<Vec<Outcome>, Fault>,
    ) -> (Vec<Outcome>, Vec<u32>) {
        let mut pieces = Pieces::of(messages);
        let mut outcomes = vec![None; messages];
        let mut starts = vec![0; messages];
        let mut order = 0;
        while let Some(piece) = pieces.next_piece() {
            assert!(!piece.is_empty());
            for message in piece.clone() {
                starts[message] += 1;
            }
            let answer = call(&piece);
            if let Some(judged) = pieces.judge(piece.clone(), answer) {
                assert_eq!(judged.len(), piece.len());
                assert_eq!(piece.start, order, "in the order of the batch");
                order = piece.end;
                for (message, outcome) in piece.zip(judged) {
                    let before = outcomes[message].replace(outcome);
                    assert_eq!(before, None, "one outcome for each");
                }
            }
        }
        let outcomes = outcomes.into_iter().map(|o| o.expect("an outcome"));
        (outcomes.collect(), starts)
    }

    #[test]
    fn a_batch_that_answers_runs_once() {
        let (outcomes, starts) = run(256, |piece| Ok(vec![Outcome::Ack; piece.len()]));
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Ack));
        assert!(starts.iter().all(|starts| *starts == 1));
    }

    #[test]
    fn a_missing_instance_charges_no_message() {
        let missing = || Fault::new(FaultKind::Instantiation, "no memory");
        let (outcomes, starts) = run(8, |_| Err(missing()));
        assert!(outcomes.iter().all(|o| *o == Outcome::Fault(missing())));
        assert!(starts.iter().all(|starts| *starts == 1));
    }

    #[test]
    fn an_empty_batch_has_no_pieces() {
        assert_eq!(Pieces::of(0).next_piece(), None);
    }

    #[test]
    fn starts_grow_with_the_logarithm_of_the_batch() {
        let expected = [
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 3),
            (5, 4),
            (16, 5),
            (17, 6),
            (256, 9),
        ];
        for (messages, starts) in expected {
            assert_eq!(starts_max(messages), starts, "{messages}");
        }
    }

    fn any_poison() -> impl Strategy<Value = Poison> {
        prop_oneof![
            12 => Just(Poison::None),
            1 => Just(Poison::Traps),
            1 => Just(Poison::Swallows),
            1 => Just(Poison::Repeats),
        ]
    }

    proptest! {
        #[test]
        fn only_poison_is_charged_and_starts_are_bounded(
            poison in prop::collection::vec(any_poison(), 0..80),
        ) {
            let (outcomes, starts) = run(poison.len(), |piece| call(piece, &poison));
            let is_single = poison.iter().filter(|poison| **poison != Poison::None).count() == 1;
            for (message, outcome) in outcomes.iter().enumerate() {
                prop_assert!((1..=starts_max(poison.len())).contains(&starts[message]));
                match (poison[message], outcome) {
                    // Two messages that err in opposite ways can hide each other: then the number of
                    // outcomes is right, and the outcomes count.
                    (_, Outcome::Ack | Outcome::Drop(_)) if !is_single && hides(&poison) => {}
                    (Poison::None, outcome) => {
                        prop_assert_eq!(outcome, &Outcome::Drop(Some(message.to_string())));
                    }
                    (Poison::Traps, Outcome::Fault(fault)) => prop_assert_eq!(fault, &trap()),
                    (Poison::Swallows | Poison::Repeats, Outcome::Fault(fault)) => {
                        prop_assert_eq!(fault.kind, FaultKind::BadOutcome);
                    }
                    (poison, outcome) => prop_assert!(false, "{poison:?} became {outcome:?}"),
                }
            }
        }
    }

    /// Whether some piece can hold one outcome too many and one too few.
    fn hides(poison: &[Poison]) -> bool {
        poison.contains(&Poison::Swallows) && poison.contains(&Poison::Repeats)
    }
}
