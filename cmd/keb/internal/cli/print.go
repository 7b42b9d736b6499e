package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
	"github.com/kyma-project/keb/libs/api/operator"
)

// printJSON prints a value or JSON from a service, indented.
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
	_, err = out.Write(view.EscapeControls(indented.Bytes()))
	return err
}

// answer sends a request to the operator API, and prints the answer: as text with show, else unchanged or in the custom columns.
func answer[T any](
	ctx context.Context, o *options, ask func(c *operator.Client, ctx context.Context) (T, json.RawMessage, error), show func(T) error,
) error {
	client, err := o.operatorClient()
	if err != nil {
		return err
	}
	got, raw, err := ask(client, ctx)
	switch {
	case err != nil:
		return err
	case o.text():
		return show(got)
	}
	return o.printPage(raw)
}

// acted is the JSON output of an action whose answer is empty.
type acted struct {
	ID string `json:"id"`
	// Result is what the action has done, for example released.
	Result string `json:"result"`
}

// done prints the result of an action whose answer is empty: as JSON, or as the formatted text.
func (o *options) done(result any, format string, args ...any) error {
	if o.json() {
		return printJSON(o.Out, result)
	}
	_, err := fmt.Fprintf(o.Out, format, args...)
	return err
}

// list is a page of a list, in the form that all lists of the APIs have.
type list struct {
	Data       []json.RawMessage `json:"data"`
	Count      int               `json:"count"`
	TotalCount int               `json:"totalCount"`
}

// printList prints items as JSON or in the custom columns.
func (o *options) printList(items []json.RawMessage) error {
	if o.json() {
		return printJSON(o.Out, list{Data: items, Count: len(items), TotalCount: len(items)})
	}
	return o.columns.Print(o.Out, items)
}

// printPage prints a page from a service unchanged or in the custom columns.
func (o *options) printPage(raw json.RawMessage) error {
	if o.json() {
		return printJSON(o.Out, raw)
	}
	var page list
	if err := json.Unmarshal(raw, &page); err != nil {
		return fmt.Errorf("read the list: %w", err)
	}
	return o.columns.Print(o.Out, page.Data)
}

// page describes the page of a list: what it lists, its number and size, the entries on it, and all entries.
type page struct {
	what                       string
	number, size, count, total int
}

// printTable prints a page as a table that fits the terminal. A page after the last one is an error.
func (o *options) printTable(p page, head []string, rows [][]string) error {
	switch {
	case p.count == 0 && p.number > 1 && p.size > 0 && p.total > 0:
		return fmt.Errorf("page %d does not exist: the last page is %d, with %d entries per page", p.number, (p.total+p.size-1)/p.size, p.size)
	case p.count == 0 && p.number > 1:
		return fmt.Errorf("page %d does not exist: there are no %s", p.number, p.what)
	case p.count == 0:
		_, err := fmt.Fprintln(o.Out, "no "+p.what)
		return err
	}
	text := view.Table(head, rows, width(o.Out))
	if p.count < p.total {
		text += fmt.Sprintf("%d of %d %s; see --page\n", p.count, p.total, p.what)
	}
	_, err := io.WriteString(o.Out, text)
	return err
}

// bar returns a progress bar on the progress output.
func (o *options) bar() *view.Bar {
	out := o.progress()
	return view.NewBar(out, func() (int, bool) {
		size, ok := terminal(out)
		if !ok {
			return 0, false
		}
		return size().Width, true
	}, time.Now)
}

// terminal returns the size of the terminal that a writer is connected to, if any.
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

// printer returns the printer of a watched operation for the output: JSON, a terminal or plain lines.
func (o *options) printer() view.Printer {
	if o.json() {
		return &view.JSON{Out: o.Out, Err: o.Err}
	}
	if size, ok := terminal(o.Out); ok {
		return &view.Terminal{Out: o.Out, Size: size}
	}
	return &view.Lines{Out: o.Out, Err: o.Err}
}
