//go:build !weirbench

package main

import (
	"errors"

	"github.com/weirhq/weir/enforcer"
)

func seed(*world, *enforcer.Enforcer, string, []string) error {
	return errors.New("many accounts need the build tag weirbench: make bench, or go run -tags weirbench .")
}
