//! Bugs that can be planted in the models of the scripts. `redbolt::proto::mutants` lists them and
//! the builds in which they exist; in other builds `mutant!(Name)` expands to `false`.

#[cfg(not(redbolt_mutants))]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

#[cfg(redbolt_mutants)]
macro_rules! mutant {
    ($name:ident) => {
        redbolt::proto::Mutant::$name.is_planted()
    };
}

pub(crate) use mutant;
