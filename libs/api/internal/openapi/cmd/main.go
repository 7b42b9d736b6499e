// Command cmd generates the schemas of the OpenAPI documents.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/kyma-project/keb/libs/api/internal/openapi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: openapi <folder of libs> <folder of the documents>")
	}
	for _, d := range openapi.Documents() {
		text, err := d.Render(args[0], args[1])
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[1], d.File), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
