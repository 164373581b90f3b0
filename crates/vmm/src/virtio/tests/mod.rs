mod corpus;
mod driver;
mod hostile;
mod normal;
mod packed;
