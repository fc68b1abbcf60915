package billing_test

import "strings"

// replace changes a plan file; what is to be replaced must be there.
func replace(file, old, with string) string {
	if !strings.Contains(file, old) {
		panic("the plan file has no " + old)
	}
	return strings.Replace(file, old, with, 1)
}

var graceFile = replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    past_due_grace: 3d")
