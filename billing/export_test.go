package billing

// NaturalPeriod is naturalPeriod for tests outside the package.
var NaturalPeriod = naturalPeriod
