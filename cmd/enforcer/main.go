// Command enforcer is the sidecar: it decides over HTTP whether an API's customer may spend one more unit, and counts
// it, for servers in any language.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "enforcer:", err)
		os.Exit(1)
	}
}
