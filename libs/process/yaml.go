package process

import (
	"bytes"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFileSize limits the size of a file that is given to the YAML parser, in bytes.
const maxFileSize = 1 << 20

// node is a YAML node that can report problems with its position.
type node struct {
	*yaml.Node
	file string
	// path identifies the node in messages, for example "retry.timeout".
	path string
	out  *problems
}

func (n node) at() position { return position{file: n.file, line: n.Line} }

// problem reports a problem with the node.
func (n node) problem(format string, args ...any) {
	if n.path != "" {
		format = strings.ReplaceAll(n.path, "%", "%%") + ": " + format
	}
	n.out.add(n.at(), format, args...)
}

var yamlErrorLine = regexp.MustCompile(`^line (\d+): (.*)$`)

// parseYAML returns the root of a file with exactly one document. It reports problems.
func parseYAML(file string, content []byte, out *problems) (node, bool) {
	roots, ok := parseDocuments(file, content, out)
	if len(roots) > 1 {
		out.add(position{file: file}, "more than one YAML document; a process file must have exactly one")
		return node{}, false
	}
	if !ok {
		return node{}, false
	}
	return roots[0], true
}

// parseDocuments returns the roots of all documents of a file, at least one. It reports problems.
func parseDocuments(file string, content []byte, out *problems) ([]node, bool) {
	whole := position{file: file}
	if len(content) > maxFileSize {
		out.add(whole, "larger than %d bytes", maxFileSize)
		return nil, false
	}
	var roots []node
	for dec := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, message := yamlError(err)
			out.add(position{file: file, line: line}, "not YAML: %s", message)
			return nil, false
		}
		if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
			roots = append(roots, node{Node: doc.Content[0], file: file, out: out})
		}
	}
	if len(roots) == 0 {
		out.add(whole, "the file is empty")
		return nil, false
	}
	return roots, true
}

// yamlError extracts line and message from an error of the YAML library. The library counts the lines of parser errors from 0 and omits
// line 0, but counts the lines of scanner errors from 1.
func yamlError(err error) (int, string) {
	message := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	line := 0
	if m := yamlErrorLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = m[2]
	}
	for _, expected := range []string{"'-' indicator", "key", "node content", "',' or ']'", "',' or '}'"} {
		if message == "did not find expected "+expected {
			line++
		}
	}
	return line, message
}

// object reads a mapping with the allowed keys. It reports unknown and duplicate keys, and returns the others so that reading can continue.
func (n node) object(allowed ...string) map[string]node {
	if n.Kind != yaml.MappingNode {
		n.problem("must be a mapping with the keys %s, is %s", strings.Join(allowed, ", "), n.kind())
		return nil
	}
	fields := make(map[string]node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		at := position{file: n.file, line: key.Line}
		switch _, again := fields[name]; {
		case key.Kind != yaml.ScalarNode || !slices.Contains(allowed, name):
			if key.Kind != yaml.ScalarNode {
				name = "<" + node{Node: key}.kind() + ">"
			}
			n.out.add(at, "%sunknown key %q; allowed: %s", n.prefix(), name, strings.Join(allowed, ", "))
		case again:
			n.out.add(at, "%skey %q is repeated", n.prefix(), name)
		default:
			path := name
			if n.path != "" {
				path = n.path + "." + name
			}
			fields[name] = node{Node: value, file: n.file, path: path, out: n.out}
		}
	}
	return fields
}

func (n node) prefix() string {
	if n.path == "" {
		return ""
	}
	return n.path + ": "
}

// without returns a copy of a mapping without some keys.
func (n node) without(keys ...string) *yaml.Node {
	reduced := *n.Node
	reduced.Content = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !slices.Contains(keys, n.Content[i].Value) {
			reduced.Content = append(reduced.Content, n.Content[i], n.Content[i+1])
		}
	}
	return &reduced
}

// list reads a sequence that is not empty.
func (n node) list() []node {
	if n.Kind != yaml.SequenceNode {
		n.problem("must be a list, is %s", n.kind())
		return nil
	}
	if len(n.Content) == 0 {
		n.problem("must not be empty")
	}
	items := make([]node, len(n.Content))
	for i, c := range n.Content {
		items[i] = node{Node: c, file: n.file, out: n.out}
	}
	return items
}

// text reads a non-empty string.
func (n node) text() (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || strings.TrimSpace(n.Value) == "" {
		n.problem("must be a text, is %s", n.kind())
		return "", false
	}
	return strings.TrimSpace(n.Value), true
}

// word reads a string that must be one of the allowed values.
func (n node) word(allowed ...string) (string, bool) {
	s, ok := n.text()
	if ok && !slices.Contains(allowed, s) {
		n.problem("%q is not allowed; allowed: %s", s, strings.Join(allowed, ", "))
		return "", false
	}
	return s, ok
}

// name reads a string that can be a token of a NATS subject.
func (n node) name() (string, bool) {
	s, ok := n.text()
	if ok && !namePattern.MatchString(s) {
		n.problem("%q is not a name; a name has at most 64 letters, digits, _ and -, and starts with a letter or digit", s)
		return "", false
	}
	return s, ok
}

var namePattern = regexp.MustCompile(NamePattern)

// duration reads a positive duration.
func (n node) duration() (time.Duration, bool) {
	s, ok := n.text()
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		n.problem("%q is not a duration; write for example 10s, 5m or 24h", s)
		return 0, false
	}
	if d < time.Millisecond {
		n.problem("%s is too short; at least 1ms", s)
		return 0, false
	}
	return d, true
}

// number reads a number from least to most.
func (n node) number(least, most float64) (float64, bool) {
	s, ok := n.text()
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= least && v <= most) { // NaN is in no range
		n.problem("%q is not allowed; write a number from %g to %g", s, least, most)
		return 0, false
	}
	return math.Abs(v), true // not -0, which JSON writes in another way
}

// kind returns a description of the node's type, for messages.
func (n node) kind() string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias, which is not supported"
	case yaml.ScalarNode:
		if n.Tag == "!!null" || strings.TrimSpace(n.Value) == "" {
			return "empty"
		}
		return strconv.Quote(n.Value)
	}
	return "something else"
}
