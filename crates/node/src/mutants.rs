//! Bugs that can be planted in the models of the scripts. Their list, and in which builds they exist, is in
//! `redbolt::proto::mutants`; elsewhere `mutant!(Name)` is the word `false`.

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
