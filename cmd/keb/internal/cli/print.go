package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/cmd/keb/internal/watch"
)

// printJSON prints a value, or JSON that came from a service, indented.
func printJSON(out io.Writer, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, raw, "", "  "); err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	indented.WriteByte('\n')
	_, err = out.Write(indented.Bytes())
	return err
}

// terminal returns the size of the terminal behind a writer, if there is one.
func terminal(out io.Writer) (func() view.Size, bool) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil, false
	}
	return func() view.Size {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return view.Size{}
		}
		return view.Size{Width: width, Height: height}
	}, true
}

// printer shows a watched operation the way the output can take it.
func (o *options) printer() watch.Printer {
	if o.json() {
		return &watch.JSON{Out: o.Out}
	}
	if size, ok := terminal(o.Out); ok {
		return &watch.Terminal{Out: o.Out, Size: size}
	}
	return &watch.Lines{Out: o.Out}
}
