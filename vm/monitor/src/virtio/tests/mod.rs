mod corpus;
mod driver;
mod exhaustive;
mod hostile;
mod in_place;
mod normal;
mod packed;
