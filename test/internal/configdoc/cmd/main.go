// Command configdoc writes docs/configuration.md; its arguments are the root of the repository and the path of the page.
package main

import (
	"fmt"
	"os"

	"github.com/kyma-project/keb/test/internal/configdoc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "configdoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("got %d arguments, want the root of the repository and the path of the page", len(args))
	}
	page, err := configdoc.Page(args[0])
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], page, 0o644)
}
