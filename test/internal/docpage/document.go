// Package docpage generates pages of docs/ from code and contracts: the APIs, the events, the environment variables, and the format of
// process files with its JSON Schema. It also reads docs/metrics.md.
package docpage

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// generated is the line below the title of a page.
const generated = "\n<!-- Generated from %s by go generate ./internal/docpage in test/; do not edit. -->\n"

// pages are the generated files, each with what renders it for the repository in root.
var pages = map[string]func(root string) ([]byte, error){
	"api/process.schema.json": processSchema,
	"docs/broker-api.md":      brokerAPI,
	"docs/configuration.md":   variables,
	"docs/events.md":          asyncAPI,
	"docs/operator-api.md":    operatorAPI,
	"docs/osb-api.md":         osbAPI,
	"docs/overlays.md":        overlays,
}

// documents reads the YAML and JSON files of a folder, each once.
type documents struct {
	dir  string
	read map[string]*yaml.Node
	// bad is the first reference that leads nowhere.
	bad error
}

// newDocuments returns the contracts of the repository in root.
func newDocuments(root string) *documents {
	return &documents{dir: filepath.Join(root, "api"), read: map[string]*yaml.Node{}}
}

// page returns the text of a page, or an error if a reference leads nowhere.
func (d *documents) page(p *page) ([]byte, error) {
	if d.bad != nil {
		return nil, d.bad
	}
	return []byte(p.String()), nil
}

// misses records a reference that leads nowhere, and returns the zero node.
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

// node is a value in a document; the zero node is missing.
type node struct {
	*yaml.Node
	docs *documents
	file string
	// name is the name of the referenced definition, for links.
	name string
}

func (n node) there() bool { return n.Node != nil }

// get returns the member of a mapping. It follows references.
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

// members returns the members of a mapping, in the order of the document.
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

// items returns the items of a list.
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

// text returns a scalar as it is written.
func (n node) text() string {
	if n = n.resolved(); !n.there() || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// texts returns the scalars of a list.
func (n node) texts() []string {
	var out []string
	for _, item := range n.items() {
		out = append(out, item.text())
	}
	return out
}

// resolved follows a reference: "#/a/b" in this document, "file" or "file#/a/b" in another. It records one that leads nowhere.
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

// raw follows a JSON pointer without resolving references on its way, because the root of a JSON Schema may be a reference into itself.
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

// page builds a page in Markdown.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// paragraph writes text after a blank line. It writes nothing if the text is empty.
func (p *page) paragraph(text string) {
	if text = strings.TrimSpace(text); text != "" {
		p.line("\n%s", text)
	}
}

// cell returns text for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// anchor returns the link to a heading, as GitHub makes them.
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
