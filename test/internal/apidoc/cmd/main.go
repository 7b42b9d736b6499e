// Command apidoc writes the pages of the contracts: its arguments are the folder of the contracts and that of the pages.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kyma-project/keb/test/internal/apidoc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("got %d arguments, want the folder of the contracts and that of the pages", len(args))
	}
	for name, render := range apidoc.Pages() {
		text, err := render(args[0])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(args[1], name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
