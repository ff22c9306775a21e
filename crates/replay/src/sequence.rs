//! The order of the turns of a playlist.

/// Each segment is played its number of times, and the whole list as often as wanted.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The number of turns of each segment, at least one each.
    times: Vec<u64>,
    /// Passes through the list; `None`: without end.
    passes: Option<u64>,
    /// Passes that are complete.
    done: u64,
    /// The segment of this turn, and its turns before this one.
    at: usize,
    turns: u64,
}

impl Sequence {
    /// A list of segments by their numbers of turns.
    pub fn new(times: Vec<u64>, passes: Option<u64>) -> Self {
        let times = times.into_iter().map(|times| times.max(1)).collect();
        Sequence { times, passes, done: 0, at: 0, turns: 0 }
    }

    /// The segment of this turn; `None` at the end.
    pub fn segment(&self) -> Option<usize> {
        let more = self.passes.is_none_or(|passes| self.done < passes);
        (more && !self.times.is_empty()).then_some(self.at)
    }

    /// Passes through the list that are complete.
    pub fn passes(&self) -> u64 {
        self.done
    }

    /// Ends a turn.
    pub fn step(&mut self) {
        self.turns += 1;
        if self.turns < self.times[self.at] {
            return;
        }
        (self.at, self.turns) = (self.at + 1, 0);
        if self.at == self.times.len() {
            (self.at, self.done) = (0, self.done + 1);
        }
    }

    /// The segment of the turn after this one.
    pub fn after(&self) -> Option<usize> {
        let mut after = self.clone();
        after.step();
        after.segment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut sequence: Sequence, most: usize) -> Vec<usize> {
        let mut order = Vec::new();
        while let Some(segment) = sequence.segment().filter(|_| order.len() < most) {
            let after = sequence.after();
            order.push(segment);
            sequence.step();
            assert_eq!(sequence.segment(), after);
        }
        order
    }

    #[test]
    fn segments_are_played_as_often_as_each_says_and_the_list_as_often_as_wanted() {
        assert_eq!(all(Sequence::new(vec![3, 1], Some(2)), 99), [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(all(Sequence::new(vec![1], Some(1)), 99), [0]);
        assert_eq!(all(Sequence::new(vec![1, 2], None), 7), [0, 1, 1, 0, 1, 1, 0]);
        assert!(all(Sequence::new(vec![1], Some(0)), 9).is_empty());
        assert!(all(Sequence::new(vec![], None), 9).is_empty());
    }

    #[test]
    fn passes_count_only_when_they_are_complete() {
        let mut sequence = Sequence::new(vec![2, 1], Some(5));
        let mut passes = Vec::new();
        for _ in 0..6 {
            sequence.step();
            passes.push(sequence.passes());
        }
        assert_eq!(passes, [0, 0, 1, 1, 1, 2]);
    }
}
