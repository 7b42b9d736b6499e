package docpage

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// The types that a file consists of.
const (
	typeProcess  = "processFile"
	typeOverlay  = "overlayFile"
	typeStage    = "stageFile"
	typeChange   = "change"
	typeAdd      = "addStep"
	typeAddStage = "addStage"
	typeMove     = "moveStep"
	typeRetime   = "retime"
	typeStep     = "Step"
	typeRetry    = "Retry"
	typeWait     = "Wait"
)

// titles are the headings of the types, in the order of the page.
var titles = []struct{ of, title string }{
	{typeOverlay, "Overlays"},
	{typeChange, "Changes"},
	{typeAdd, "add"},
	{typeAddStage, "addStage"},
	{typeMove, "move"},
	{typeRetime, "retime"},
	{typeStep, "Steps"},
	{typeRetry, "retry"},
	{typeWait, "wait"},
	{typeProcess, "Process files"},
	{typeStage, "Stages"},
}

// Member is a member of a mapping.
type Member struct {
	// Of is the name of the type that has the member.
	Of string
	// Key is the key in a file; empty if the members of Type belong to the outer mapping, except those of Without.
	Key     string
	Without []string
	// Type is a name of a type, such as "Step" or "time.Duration"; List reports whether the member is a list of it.
	Type string
	List bool
	// Allowed are the only values, if the type has constants.
	Allowed                           []Value
	Default, Format, Minimum, Maximum string
	Required                          bool
	Text, Example                     string
}

// Value is an allowed value.
type Value struct{ Name, Text string }

// formatType is a type of the format.
type formatType struct {
	text    string
	members []Member
}

// format contains the types and constants of the package libs/process.
type format struct {
	structs map[string]*formatType
	values  map[string][]Value
}

// readFormat parses the package libs/process of the repository in root.
func readFormat(root string) (*format, error) {
	files, err := filepath.Glob(filepath.Join(root, "libs/process/*.go"))
	if err != nil {
		return nil, err
	}
	s := &format{structs: map[string]*formatType{}, values: map[string][]Value{}}
	for _, t := range event.OperationTypes() {
		s.values["event.OperationType"] = append(s.values["event.OperationType"], Value{Name: string(t)})
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.GenDecl); ok {
				for _, spec := range decl.Specs {
					s.add(spec, decl.Doc)
				}
			}
		}
	}
	for _, t := range titles {
		if s.structs[t.of] == nil {
			return nil, fmt.Errorf("libs/process has no struct %s", t.of)
		}
		if err := s.resolve(t.of); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add stores the structs and the constants of a declaration.
func (s *format) add(spec ast.Spec, doc *ast.CommentGroup) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		t, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		found := &formatType{text: cmp.Or(spec.Doc.Text(), doc.Text())}
		for _, field := range t.Fields.List {
			if m, ok := member(spec.Name.Name, field); ok {
				found.members = append(found.members, m)
			}
		}
		s.structs[spec.Name.Name] = found
	case *ast.ValueSpec:
		of, ok := spec.Type.(*ast.Ident)
		if !ok || len(spec.Values) != 1 {
			return
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				s.values[of.Name] = append(s.values[of.Name], Value{value, sentence(cmp.Or(spec.Doc.Text(), doc.Text()), spec.Names[0].Name)})
			}
		}
	}
}

// member reads a field with the tag yaml.
func member(of string, field *ast.Field) (Member, bool) {
	if field.Tag == nil || len(field.Names) != 1 {
		return Member{}, false
	}
	text, _ := strconv.Unquote(field.Tag.Value)
	tag := reflect.StructTag(text)
	key, option, _ := strings.Cut(tag.Get("yaml"), ",")
	if key == "" && option != "inline" {
		return Member{}, false
	}
	m := Member{
		Of: of, Key: key, Default: tag.Get("default"), Format: tag.Get("format"), Minimum: tag.Get("minimum"), Maximum: tag.Get("maximum"),
		Required: tag.Get("required") == "true", Text: sentence(field.Doc.Text(), field.Names[0].Name), Example: tag.Get("example"),
	}
	if without := tag.Get("without"); without != "" {
		m.Without = strings.Split(without, ",")
	}
	expr := field.Type
	switch t := expr.(type) {
	case *ast.ArrayType:
		expr, m.List = t.Elt, true
	case *ast.StarExpr:
		expr = t.X
	}
	switch t := expr.(type) {
	case *ast.Ident:
		m.Type = t.Name
	case *ast.SelectorExpr:
		m.Type = t.X.(*ast.Ident).Name + "." + t.Sel.Name
	}
	return m, true
}

// resolve adds the allowed values of members, and reports members that the page could not explain.
func (s *format) resolve(of string) error {
	t := s.structs[of]
	if t.text == "" {
		return fmt.Errorf("%s has no comment", of)
	}
	for i := range t.members {
		m := &t.members[i]
		m.Allowed = s.values[m.Type]
		switch {
		case m.Key != "" && (m.Text == "" || m.Example == ""):
			return fmt.Errorf("%s.%s needs a comment and an example", of, m.Key)
		case m.Type == "string", m.Type == "float64", m.Type == "time.Duration", len(m.Allowed) > 0:
		case !slices.ContainsFunc(titles, func(t struct{ of, title string }) bool { return t.of == m.Type }):
			return fmt.Errorf("%s.%s has the type %s, which is not a part of the format", of, m.Key, m.Type)
		}
	}
	return nil
}

// members returns the members of a mapping, with those of inline types in their place.
func (s *format) members(of string) []Member {
	var all []Member
	for _, m := range s.structs[of].members {
		if m.Key != "" {
			all = append(all, m)
			continue
		}
		for _, inner := range s.members(m.Type) {
			if !slices.Contains(m.Without, inner.Key) {
				// What is required of a step is not required of a change to it, and a change does not set defaults.
				if len(m.Without) > 0 {
					inner.Required, inner.Default = false, ""
				}
				all = append(all, inner)
			}
		}
	}
	return all
}

// formatMembers returns the members of every type in the repository in root, without those of inline types.
func formatMembers(root string) ([]Member, error) {
	s, err := readFormat(root)
	if err != nil {
		return nil, err
	}
	var all []Member
	for _, t := range titles {
		for _, m := range s.structs[t.of].members {
			if m.Key != "" {
				all = append(all, m)
			}
		}
	}
	return all, nil
}

// sentence returns a comment on one line, without the name that it begins with.
func sentence(comment, name string) string {
	text := strings.Join(strings.Fields(comment), " ")
	rest, ok := strings.CutPrefix(text, name+" ")
	if !ok {
		return text
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}
