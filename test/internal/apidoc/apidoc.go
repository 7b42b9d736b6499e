// Package apidoc renders the contracts in api/ as pages that people read: the
// APIs of orchestrator and broker (OpenAPI) and the events (AsyncAPI with JSON Schemas).
package apidoc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// generated stands below the title of a page.
const generated = "\n<!-- Generated from %s by go generate ./internal/apidoc in test/; do not edit. -->\n"

// documents reads YAML and JSON files of a folder, each once.
type documents struct {
	dir  string
	read map[string]*yaml.Node
	// bad is the first reference that leads nowhere. What it should lead to is missing from the page, which therefore counts for nothing.
	bad error
}

// page is what has been written, unless a reference leads nowhere.
func (d *documents) page(p *page) ([]byte, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	return []byte(p.String()), nil
}

// misses notes that a reference leads nowhere, and returns the node that is not there.
func (d *documents) misses(format string, args ...any) node {
	if d.bad == nil {
		d.bad = fmt.Errorf(format, args...)
	}
	return node{}
}

func (d *documents) open(name string) (node, error) {
	if d.read[name] == nil {
		raw, err := os.ReadFile(filepath.Join(d.dir, filepath.FromSlash(name)))
		if err != nil {
			return node{}, err
		}
		var root yaml.Node
		if err := yaml.Unmarshal(raw, &root); err != nil {
			return node{}, fmt.Errorf("%s: %w", name, err)
		}
		if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
			return node{}, fmt.Errorf("%s: is empty", name)
		}
		d.read[name] = root.Content[0]
	}
	return node{Node: d.read[name], docs: d, file: name}, nil
}

// node is a value in a document; the zero node is one that is not there.
type node struct {
	*yaml.Node
	docs *documents
	file string
	// name is that of a referenced definition, for links.
	name string
}

func (n node) there() bool { return n.Node != nil }

// get is the member of a mapping. References are followed.
func (n node) get(keys ...string) node {
	for _, key := range keys {
		n = n.resolved()
		if !n.there() || n.Kind != yaml.MappingNode {
			return node{}
		}
		found := node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				found = node{Node: n.Content[i+1], docs: n.docs, file: n.file}
			}
		}
		n = found
	}
	return n
}

// members are those of a mapping, in the order of the document.
func (n node) members() (names []string, values []node) {
	if n = n.resolved(); !n.there() || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		names = append(names, n.Content[i].Value)
		values = append(values, node{Node: n.Content[i+1], docs: n.docs, file: n.file})
	}
	return names, values
}

// items are those of a list.
func (n node) items() []node {
	if n = n.resolved(); !n.there() || n.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]node, len(n.Content))
	for i := range n.Content {
		items[i] = node{Node: n.Content[i], docs: n.docs, file: n.file}
	}
	return items
}

// text is a scalar as it is written.
func (n node) text() string {
	if n = n.resolved(); !n.there() || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// texts are the scalars of a list.
func (n node) texts() []string {
	var out []string
	for _, item := range n.items() {
		out = append(out, item.text())
	}
	return out
}

// resolved follows a reference: "#/a/b" in this document, "file" or "file#/a/b" in another. One that leads nowhere is noted in
// the documents.
func (n node) resolved() node {
	n = n.dealiased()
	for n.there() && n.Kind == yaml.MappingNode {
		ref := ""
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == "$ref" {
				ref = n.Content[i+1].Value
			}
		}
		if ref == "" {
			return n
		}
		file, path, _ := strings.Cut(ref, "#")
		if file == "" {
			file = n.file
		}
		next, err := n.docs.open(file)
		if err != nil {
			return n.docs.misses("$ref %s: %w", ref, err)
		}
		next = next.raw(path)
		if !next.there() {
			return n.docs.misses("%s: $ref %s leads nowhere", n.file, ref)
		}
		parts := strings.Split(ref, "/")
		next.name = parts[len(parts)-1]
		n = next
	}
	return n
}

// dealiased follows a YAML alias.
func (n node) dealiased() node {
	if n.there() && n.Kind == yaml.AliasNode {
		n.Node = n.Alias
	}
	return n
}

// raw follows a JSON pointer without resolving what is on the way, for the root of a JSON Schema may be a reference into itself.
func (n node) raw(pointer string) node {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if part == "" {
			continue
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		found := node{}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == part {
				found = node{Node: n.Content[i+1], docs: n.docs, file: n.file}
			}
		}
		if n = found.dealiased(); !n.there() {
			return n
		}
	}
	return n
}

// page is Markdown in the making.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// paragraph writes text between blank lines; nothing if it is empty.
func (p *page) paragraph(text string) {
	if text = strings.TrimSpace(text); text != "" {
		p.line("\n%s", text)
	}
}

// cell is text that fits a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// anchor is the link to a heading, as GitHub makes them.
func anchor(heading string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ', r == '-':
			out.WriteByte('-')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			out.WriteRune(r)
		}
	}
	return "#" + out.String()
}

// Pages are the pages by file name, each with what renders it from the folder of the contracts.
func Pages() map[string]func(dir string) ([]byte, error) {
	return map[string]func(string) ([]byte, error){"operator-api.md": OpenAPI, "broker-api.md": BrokerAPI, "osb-api.md": OSBAPI, "events.md": AsyncAPI}
}
