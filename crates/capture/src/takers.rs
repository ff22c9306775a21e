//! The sources that take a datagram, by its port, its address and its interface.

use std::net::IpAddr;

use crate::packet_filter::PortRule;

/// The rules of several sources.
#[derive(Clone, Debug)]
pub struct Takers {
    rules: Vec<PortRule>,
    /// Ports with the numbers of their rules, in order.
    by_port: Vec<(u16, usize)>,
}

impl Takers {
    /// The sources with these rules. A source has the number of its rule.
    pub fn new(rules: Vec<PortRule>) -> Self {
        let numbered = rules.iter().enumerate();
        let mut by_port: Vec<(u16, usize)> =
            numbered.map(|(number, rule)| (rule.address.port(), number)).collect();
        by_port.sort_unstable();
        Self { rules, by_port }
    }

    /// The number of sources.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// Returns the sources that take a datagram. Only one to a group can have several.
    pub fn of(&self, port: u16, to: IpAddr, interface: u32) -> impl Iterator<Item = usize> {
        let first = self.by_port.partition_point(|(of, _)| *of < port);
        let of_port = self.by_port[first..].iter().take_while(move |(of, _)| *of == port);
        let numbers = of_port.map(|(_, number)| *number);
        numbers.filter(move |number| self.rules[*number].takes(to, interface))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_by_port_address_and_interface() {
        let rule = |text: &str, interface| PortRule { address: text.parse().unwrap(), interface };
        let takers = Takers::new(vec![
            rule("239.1.2.3:5000", None),
            rule("10.0.0.1:5001", None),
            rule("239.1.2.3:5000", Some(7)),
            rule("10.0.0.1:5000", None),
        ]);
        let of = |port, to: &str, interface| {
            takers.of(port, to.parse().unwrap(), interface).collect::<Vec<_>>()
        };
        assert_eq!(of(5000, "239.1.2.3", 7), [0, 2]);
        assert_eq!(of(5000, "239.1.2.3", 8), [0]);
        assert_eq!(of(5000, "10.0.0.1", 7), [3]);
        assert_eq!(of(5001, "10.0.0.1", 7), [1]);
        assert!(of(5002, "10.0.0.1", 7).is_empty() && of(5001, "10.0.0.2", 7).is_empty());
    }
}
