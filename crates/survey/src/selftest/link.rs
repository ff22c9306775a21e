//! Tests 00 and 11: what can be seen of the target before, and whether it is still so after.

use super::medium::Look;
use super::run::{CHUNK, Failure, Run, demand};

/// Looks at the target. It is passed when its link is as fast as both ends can, and its first and last chunk
/// can be reached.
pub fn at_first(run: &mut Run) -> Result<(), Failure> {
    let look = run.rig.medium.look();
    tell(run, &look);
    link_is_good(&look)?;
    let last = run.usable - CHUNK;
    for first in [0, last] {
        let seed = run.seed();
        run.write(first, 1, seed)?;
        run.verify(first, 1, seed)?;
    }
    run.info(format!("first and last chunk, at 0x0 and {last:#x}, are written and read"));
    Ok(())
}

/// Looks at it once more. It is passed when size and link are as they were, and no errors have been counted.
pub fn at_last(run: &mut Run, first: &Look) -> Result<(), Failure> {
    let look = run.rig.medium.look();
    tell(run, &look);
    link_is_good(&look)?;
    demand(look.bytes == first.bytes, || {
        format!("the target had {} bytes, and now has {}", first.bytes, look.bytes)
    })?;
    demand(look.link == first.link, || "the link has changed since the first test".into())?;
    let (before, after) = (first.errors.unwrap_or(0), look.errors.unwrap_or(0));
    demand(after <= before, || {
        format!("the kernel has counted {} errors of the device meanwhile", after - before)
    })
}

fn tell(run: &mut Run, look: &Look) {
    look.lines.iter().for_each(|line| run.info(line.clone()));
    match &look.link {
        Some(link) => {
            let best = format!("both ends can {} x{}", link.best_speed, link.best_width);
            run.info(format!("link: {} x{} ({best})", link.speed, link.width));
        }
        None => run.info("link: not known (none is told of this target)"),
    }
}

fn link_is_good(look: &Look) -> Result<(), Failure> {
    let slow = look.link.as_ref().filter(|link| link.is_slow());
    demand(slow.is_none(), || {
        let link = slow.expect("only told of a slow one");
        format!(
            "the link runs at {} x{}, and both ends can {} x{}: a bad slot, cable or contact",
            link.speed, link.width, link.best_speed, link.best_width
        )
    })
}
