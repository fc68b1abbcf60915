package main

import "strings"

func orUnknown(amount *string, currency string) string {
	if amount == nil {
		return "no price known"
	}
	return *amount + " " + strings.ToUpper(currency)
}
