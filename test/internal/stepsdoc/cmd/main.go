// Command stepsdoc writes docs/steps.md, whose path is its argument.
package main

import (
	"fmt"
	"os"

	"github.com/kyma-project/keb/test/internal/stepsdoc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stepsdoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want the path of the page", len(args))
	}
	page, err := stepsdoc.Generate()
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], page, 0o644)
}
