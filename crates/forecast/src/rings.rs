//! How many rings a mesh of NVLinks holds.
//!
//! Where no switch joins the GPUs, a ring can only go where links are. Each ring takes one link for every step, or two
//! where it must pass through a third GPU. The number of rings that can run at the same time decides the bandwidth.

/// The links between GPUs: `links[a][b]` of them from `a` to `b`.
pub(crate) type Mesh = Vec<Vec<u32>>;

/// Rings that can run at the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rings {
    /// How many.
    pub(crate) count: u32,
    /// How many of them pass through a GPU that is not their next.
    pub(crate) detours: u32,
}

/// More GPUs than this are not joined by a mesh.
const MOST: usize = 16;
/// Steps of one search.
const BUDGET: u32 = 20_000;
/// How often the search restarts, each time with the neighbours in another order.
const TRIES: u64 = 60;

/// The most rings that are found: first those that use direct links only, then those with detours.
pub(crate) fn rings(mesh: &Mesh) -> Rings {
    let n = mesh.len();
    if !(2..=MOST).contains(&n) || mesh.iter().any(|it| it.len() != n) {
        return Rings::default();
    }
    // No GPU has more links than this.
    let mesh: Mesh = mesh.iter().map(|row| row.iter().map(|it| *it.min(&36)).collect()).collect();
    let most = mesh.iter().map(|it| it.iter().sum::<u32>()).min().unwrap_or(0);
    let mut best = Rings::default();
    for seed in 0..TRIES {
        let mut search = Search { free: mesh.clone(), n, seed, budget: BUDGET };
        let mut found = Rings::default();
        for detours in [false, true] {
            while search.ring(detours) {
                found.count += 1;
                found.detours += u32::from(detours);
            }
        }
        if found.count > best.count || (found.count == best.count && found.detours < best.detours) {
            best = found;
        }
        if best.count == most && best.detours == 0 {
            break;
        }
    }
    best
}

struct Search {
    free: Mesh,
    n: usize,
    seed: u64,
    budget: u32,
}

impl Search {
    /// Takes one ring out of the free links; leaves them as they were if there is none.
    fn ring(&mut self, detours: bool) -> bool {
        let mut seen = vec![false; self.n];
        if let Some(first) = seen.first_mut() {
            *first = true;
        }
        self.step(0, 1, detours, &mut seen)
    }

    /// Depth is bounded by the number of GPUs.
    fn step(&mut self, at: usize, visited: usize, detours: bool, seen: &mut [bool]) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        if visited == self.n {
            return self.hop(at, 0, detours).is_some();
        }
        let mut next: Vec<usize> = (0..self.n).filter(|it| !seen[*it]).collect();
        // Where few links are left, they should be used first; of equals the seed decides.
        let salt = self.seed;
        let chance =
            |it: usize| (it as u64 + 1).wrapping_mul(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) >> 40;
        next.sort_by_key(|it| (self.free[*it].iter().sum::<u32>(), chance(*it)));
        for to in next {
            let Some(taken) = self.hop(at, to, detours) else { continue };
            seen[to] = true;
            if self.step(to, visited + 1, detours, seen) {
                return true;
            }
            seen[to] = false;
            for (a, b) in taken {
                self.free[a][b] += 1;
            }
        }
        false
    }

    /// Takes the links of one step of a ring.
    fn hop(&mut self, from: usize, to: usize, detours: bool) -> Option<Vec<(usize, usize)>> {
        let taken = if self.free[from][to] > 0 {
            vec![(from, to)]
        } else {
            let through = (0..self.n)
                .filter(|_| detours)
                .find(|it| self.free[from][*it] > 0 && self.free[*it][to] > 0)?;
            vec![(from, through), (through, to)]
        };
        for (a, b) in &taken {
            self.free[*a][*b] -= 1;
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{Mesh, rings};

    /// The hybrid cube mesh of a DGX-1 with V100, its first `n` GPUs.
    fn cube(n: usize) -> Mesh {
        let pairs = [
            (0, 1, 1),
            (0, 2, 1),
            (0, 3, 2),
            (0, 4, 2),
            (1, 2, 2),
            (1, 3, 1),
            (1, 5, 2),
            (2, 3, 1),
            (2, 6, 2),
            (3, 7, 2),
            (4, 5, 1),
            (4, 6, 1),
            (4, 7, 2),
            (5, 6, 2),
            (5, 7, 1),
            (6, 7, 1),
        ];
        let mut mesh = vec![vec![0; n]; n];
        for (a, b, count) in pairs.into_iter().filter(|it| it.0 < n && it.1 < n) {
            mesh[a][b] = count;
            mesh[b][a] = count;
        }
        mesh
    }

    #[test]
    fn a_cube_mesh_holds_as_many_rings_as_were_measured() {
        // 22 GB/s each: 22.5, 85, 37, 87 and 134 GB/s were measured with 2, 4, 5, 7 and 8 GPUs.
        let found: Vec<u32> = (2..=8).map(|n| rings(&cube(n)).count).collect();
        assert_eq!(found, [1, 2, 4, 2, 3, 4, 6]);
    }

    #[test]
    fn the_names_of_gpus_do_not_matter() {
        let mesh = cube(8);
        for order in [[7, 6, 5, 4, 3, 2, 1, 0], [3, 1, 4, 0, 5, 2, 6, 7], [2, 7, 1, 0, 4, 6, 3, 5]] {
            let turned = order.iter().map(|a| order.iter().map(|b| mesh[*a][*b]).collect()).collect();
            assert_eq!(rings(&turned).count, 6, "{order:?}");
        }
    }

    #[test]
    fn what_is_not_joined_has_no_ring() {
        assert_eq!(rings(&vec![vec![0; 4]; 4]).count, 0);
        assert_eq!(rings(&vec![vec![0, 9], vec![9]]).count, 0);
        assert_eq!(rings(&Vec::new()).count, 0);
        assert_eq!(rings(&vec![vec![1; 200]; 200]).count, 0);
    }

    #[test]
    fn a_bridge_of_four_links_is_four_rings() {
        assert_eq!(rings(&vec![vec![0, 4], vec![4, 0]]).count, 4);
    }
}
