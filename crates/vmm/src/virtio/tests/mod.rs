mod corpus;
mod driver;
mod exhaustive;
mod hostile;
mod normal;
mod packed;
