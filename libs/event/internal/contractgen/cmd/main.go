// Command cmd writes the generated parts of the contract into the folder given as its argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kyma-project/keb/libs/event/internal/contractgen"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: contractgen <api folder>, from libs/event")
	}
	files, err := contractgen.Generate(".")
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(args[0], filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
