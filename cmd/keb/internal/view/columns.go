package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	"k8s.io/client-go/util/jsonpath"
)

// Columns are the columns of a table, from left to right.
type Columns []column

type column struct {
	header string
	path   *jsonpath.JSONPath
}

// ParseColumns reads "HEADER:JSONPATH,HEADER:JSONPATH". The braces and the first dot of a JSONPath may be left out, so "instanceID",
// ".instanceID" and "{.instanceID}" are the same. The error names the column.
func ParseColumns(spec string) (Columns, error) {
	var out Columns
	for _, part := range split(spec) {
		header, expression, found := strings.Cut(part, ":")
		header, expression = strings.TrimSpace(header), strings.TrimSpace(expression)
		if !found || header == "" || expression == "" {
			return nil, fmt.Errorf("column %q: must be HEADER:JSONPATH, for example SHOOT:shootName", part)
		}
		path := jsonpath.New(header).AllowMissingKeys(true)
		if err := path.Parse(relaxed(expression)); err != nil {
			return nil, fmt.Errorf("column %s: %q is not a valid JSONPath: %w", header, expression, err)
		}
		out = append(out, column{header: header, path: path})
	}
	if len(out) == 0 {
		return nil, errors.New("no column given; write HEADER:JSONPATH, separated by commas")
	}
	return out, nil
}

// split splits at commas, except those in brackets, such as in "{.a[0,1]}", and in quotes.
func split(spec string) []string {
	depth, quote := 0, rune(0)
	return strings.FieldsFunc(spec, func(r rune) bool {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '{' || r == '[' || r == '(':
			depth++
		case r == '}' || r == ']' || r == ')':
			depth--
		}
		return r == ',' && depth <= 0 && quote == 0
	})
}

func relaxed(expression string) string {
	switch {
	case strings.HasPrefix(expression, "{"):
		return expression
	case strings.HasPrefix(expression, "."), strings.HasPrefix(expression, "["):
		return "{" + expression + "}"
	default:
		return "{." + expression + "}"
	}
}

// Print prints a line for each item, which is a JSON value. A missing value is printed as "-".
func (c Columns) Print(out io.Writer, items []json.RawMessage) error {
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	cells := make([]string, len(c))
	for i := range c {
		cells[i] = c[i].header
	}
	row(table, cells)
	for _, raw := range items {
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber() // keep long numeric ids exact
		var item any
		if err := decoder.Decode(&item); err != nil {
			return fmt.Errorf("read an item of the list: %w", err)
		}
		for i := range c {
			cell, err := c[i].cell(item)
			if err != nil {
				return err
			}
			cells[i] = cell
		}
		row(table, cells)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := io.WriteString(out, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}

func row(table io.Writer, cells []string) {
	fmt.Fprintln(table, strings.Join(cells, "\t")+"\t")
}

func (c *column) cell(item any) (string, error) {
	found, err := c.path.FindResults(item)
	if err != nil {
		return "", fmt.Errorf("column %s: %w", c.header, err)
	}
	var values []string
	for _, results := range found {
		for _, result := range results {
			text, err := shown(result)
			if err != nil {
				return "", fmt.Errorf("column %s: %w", c.header, err)
			}
			values = append(values, text)
		}
	}
	text := OneLine(strings.Join(values, ","))
	if text == "" {
		return "-", nil
	}
	return text, nil
}

// shown returns strings unchanged and other values as JSON.
func shown(v reflect.Value) (string, error) {
	if !v.IsValid() || v.Kind() == reflect.Interface && v.IsNil() {
		return "", nil
	}
	value := v.Interface()
	if text, ok := value.(string); ok {
		return text, nil
	}
	raw, err := json.Marshal(value)
	return string(raw), err
}
