package admin

// AccountPath is the address of an account's page.
var AccountPath = accountPath
