package docpage

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/kyma-project/keb/"

// structure is a struct of the code, as "services/broker.Config".
type structName string

// section is one of the page.
type section struct {
	title, text string
	roots       []structName
}

// Shared structures have a section of their own, to which those refer that embed them.
var shared = map[structName]string{
	"libs/access.Config":                               "Roles",
	"libs/bus.Config":                                  "Bus",
	"libs/postgres.Address":                            "Database",
	"libs/service.API":                                 "API",
	"libs/service.Metrics":                             "Metrics and health",
	"services/step-workers/provisioner.ClientConfig":   "Runtime Provisioner",
	"services/step-workers/internal/kube.ControlPlane": "Kyma control plane",
	"services/step-workers/internal/kube.Gardener":     "Gardener",
}

const everyWorker = "Every worker"

// pace is the variable that each worker has.
var pace = Variable{Name: "KEB_PACE", Text: "The time between two polls of an external system, and after an error, for all steps of the process. Without it each step has its own " +
	"interval; 0s is the interval of the process file"}

// Variable is one environment variable.
type Variable struct {
	Name, Default, Text string
	Required            bool
}

// variables returns docs/configuration.md for the repository in root.
func variables(root string) ([]byte, error) {
	var b strings.Builder
	b.WriteString("# Environment variables\n" + fmt.Sprintf(generated, "the structs of the services") + "\n" +
		"The services read these variables at their start. For each variable `X`, `X_FILE` names a file with its value. An invalid value is an error that\n" +
		"names the variable; with `-check-config` broker, orchestrator and workers only check them. Durations are written `500ms`, `30s`, `5m` or `336h`, lists with commas, maps `key:value,key:value`.\n" +
		"The variables of `keb` are in [operator.md](operator.md), those of tracing [there, too](operator.md#tracing), those of Docker Compose in\n" +
		"[install.md](install.md#with-docker-compose), and the flags of BTP Manager in [btp-manager.md](btp-manager.md).\n")
	sections, err := sections(root)
	if err != nil {
		return nil, err
	}
	s := goSource{root: root, packages: map[string]map[string]*goStruct{}}
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n", section.title)
		if section.text != "" {
			fmt.Fprintf(&b, "\n%s\n", section.text)
		}
		var variables []Variable
		var also []string
		for _, of := range section.roots {
			own, refers, err := s.variables(of, "", true)
			if err != nil {
				return nil, err
			}
			variables, also = append(variables, own...), append(also, refers...)
		}
		if len(also) > 0 {
			b.WriteString("\n")
		}
		for _, title := range also {
			fmt.Fprintf(&b, "Also those of [%s](%s).\n", title, anchor(title))
		}
		// Each worker has this variable, with defaults of its steps; the section of all workers explains it.
		variables = slices.DeleteFunc(variables, func(v Variable) bool { return v.Name == pace.Name })
		if section.title == everyWorker {
			variables = append(variables, pace)
		}
		if len(variables) == 0 {
			continue
		}
		b.WriteString("\n| Variable | Default | Meaning |\n|---|---|---|\n")
		for _, v := range variables {
			value := ""
			switch {
			case v.Required:
				value = "required"
			case v.Default != "":
				value = "`" + v.Default + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, value, cell(v.Text))
		}
	}
	return []byte(b.String()), nil
}

func sections(root string) ([]section, error) {
	all := []section{
		{"Every service and worker", "", []structName{"libs/service.LogConfig"}},
		{"Broker", "", []structName{"services/broker/cmd/broker.config"}},
		{"Orchestrator", "", []structName{"services/orchestrator/cmd/orchestrator.config"}},
		{"Roles", "Of broker and orchestrator; [who may do what](operator.md#who-may-do-what) says how to use them.", []structName{"libs/access.Config"}},
		{"Bus", "Of broker, orchestrator and workers.", []structName{"libs/bus.Config"}},
		{"Database", "Of broker and orchestrator.", []structName{"libs/postgres.Address"}},
		{"API", "Of the address of the OSB API (broker) and of the operator API (orchestrator).", []structName{"libs/service.API"}},
		{"Metrics and health", "Of broker, orchestrator and workers.", []structName{"libs/service.Metrics"}},
		{"Jobs", "The command line sets some of them, too: `jobs --help`.", []structName{"services/jobs.Config"}},
		{"Landscape", "The simulated external systems, [landscape.md](landscape.md), with `keb landscape`.", []structName{"landscape.Config"}},
		{everyWorker, "", []structName{"libs/worker.environment"}},
		{"Gardener", "Of the workers that refer to it.", []structName{"services/step-workers/internal/kube.Gardener"}},
		{"Kyma control plane", "Of the workers that refer to it.", []structName{"services/step-workers/internal/kube.ControlPlane"}},
		{"Runtime Provisioner", "Of the workers that refer to it.", []structName{"services/step-workers/provisioner.ClientConfig"}},
	}
	folders, err := WorkerFolders(root)
	if err != nil {
		return nil, err
	}
	for _, folder := range slices.Sorted(maps.Values(folders)) {
		all = append(all, section{"Worker " + path.Base(folder), "", []structName{structName(folder + ".Config")}})
	}
	return all, nil
}

// WorkerFolders are the folders of the step workers below root by the names of the workers, from the constants in the code.
func WorkerFolders(root string) (map[string]string, error) {
	docs, err := filepath.Glob(filepath.Join(root, "services/step-workers/*/doc.go"))
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, doc := range docs {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(doc), "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(string(text)) {
				if rest, ok := strings.CutPrefix(line, "const Name = "); ok {
					name, err := strconv.Unquote(strings.TrimSpace(rest))
					if err != nil {
						return nil, err
					}
					found[name] = "services/step-workers/" + filepath.Base(filepath.Dir(doc))
				}
			}
		}
	}
	if len(found) != len(docs) {
		return nil, fmt.Errorf("%d names of %d workers", len(found), len(docs))
	}
	return found, nil
}

// goStruct is a struct, and the file that says what its imports are.
type goStruct struct {
	*ast.StructType
	file *ast.File
}

type goSource struct {
	root     string
	packages map[string]map[string]*goStruct
	// whole takes shared structures as part of those that embed them.
	whole bool
}

func (s *goSource) find(of structName) (*goStruct, error) {
	dot := strings.LastIndexByte(string(of), '.')
	folder, name := string(of[:dot]), string(of[dot+1:])
	if s.packages[folder] == nil {
		structs, err := structsOf(filepath.Join(s.root, filepath.FromSlash(folder)))
		if err != nil {
			return nil, err
		}
		s.packages[folder] = structs
	}
	if s.packages[folder][name] == nil {
		return nil, fmt.Errorf("there is no struct %s", of)
	}
	return s.packages[folder][name], nil
}

func structsOf(folder string) (map[string]*goStruct, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	structs := map[string]*goStruct{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, e.Name()), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if t, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = &goStruct{t, file}
				}
			}
			return true
		})
	}
	return structs, nil
}

// variables are those of a struct and of the structs in it, and the titles of the sections that it refers to.
func (s *goSource) variables(of structName, prefix string, top bool) (own []Variable, refers []string, err error) {
	if title := shared[of]; title != "" && !top && !s.whole {
		return nil, []string{title}, nil
	}
	t, err := s.find(of)
	if err != nil {
		return nil, nil, err
	}
	names := map[string]string{}
	for _, field := range t.Fields.List {
		if name, _, _ := strings.Cut(tagOf(field).Get("env"), ","); len(field.Names) == 1 && name != "" {
			names[field.Names[0].Name] = prefix + name
		}
	}
	last, lastName := "", ""
	for _, field := range t.Fields.List {
		tag := tagOf(field)
		name, options, _ := strings.Cut(tag.Get("env"), ",")
		switch name {
		case "-":
		case "":
			inner, ok := t.structName(of, field.Type)
			if !ok {
				continue
			}
			more, also, err := s.variables(inner, prefix+tag.Get("envPrefix"), false)
			if err != nil {
				return nil, nil, err
			}
			own, refers = append(own, more...), append(refers, also...)
		default:
			v := Variable{Name: prefix + name, Default: tag.Get("envDefault"), Required: strings.Contains(options, "required")}
			said := comment(field)
			switch mentioned := strings.Contains(last, field.Names[0].Name); {
			case said != "":
				v.Text = meaning(said, field.Names[0].Name, names)
				last, lastName = said, v.Name
			case mentioned:
				v.Text = "see `" + lastName + "`"
			}
			own = append(own, v)
		}
	}
	return own, refers, nil
}

func tagOf(field *ast.Field) reflect.StructTag {
	if field.Tag == nil {
		return ""
	}
	text, _ := strconv.Unquote(field.Tag.Value)
	return reflect.StructTag(text)
}

// structure is the struct of the repository that an expression of a type names.
func (f *goStruct) structName(within structName, expr ast.Expr) (structName, bool) {
	switch t := expr.(type) {
	case *ast.Ident:
		if token.IsExported(t.Name) {
			return within[:strings.LastIndexByte(string(within), '.')+1] + structName(t.Name), true
		}
	case *ast.SelectorExpr:
		name, ok := t.X.(*ast.Ident)
		if !ok {
			return "", false
		}
		for _, i := range f.file.Imports {
			imported, _ := strconv.Unquote(i.Path.Value)
			local := path.Base(imported)
			if i.Name != nil {
				local = i.Name.Name
			}
			if inside, ok := strings.CutPrefix(imported, module); ok && local == name.Name {
				return structName(inside + "." + t.Sel.Name), true
			}
		}
	}
	return "", false
}

var (
	space = regexp.MustCompile(`\s+`)
	fact  = regexp.MustCompile(` \(docs/contracts/[^)]*\)`)
	word  = regexp.MustCompile(`\b[A-Z]\w+`)
)

// comment is that of a field, on one line.
func comment(field *ast.Field) string {
	text := cmp.Or(field.Doc.Text(), field.Comment.Text())
	return strings.TrimSuffix(strings.TrimSpace(fact.ReplaceAllString(space.ReplaceAllString(text, " "), "")), ".")
}

// meaning is what a comment says, without the field's own name at its beginning, and with variables in place of other fields.
func meaning(comment, field string, variables map[string]string) string {
	if rest, ok := strings.CutPrefix(comment, field+" "); ok && !strings.HasPrefix(rest, "and ") && !strings.HasPrefix(rest, "or ") {
		rest = strings.TrimPrefix(rest, "is ")
		rest = strings.TrimPrefix(rest, "are ")
		comment = strings.ToUpper(rest[:1]) + rest[1:]
	}
	return word.ReplaceAllStringFunc(comment, func(w string) string {
		if name := variables[w]; name != "" {
			return "`" + name + "`"
		}
		return w
	})
}

// Variables are those that structs of the repository in root take from the environment, with those of the structs in them, by name. A struct
// is named by its folder, such as "services/broker/cmd/broker.config".
func Variables(root string, structs ...string) (map[string]Variable, error) {
	s := goSource{root: root, packages: map[string]map[string]*goStruct{}, whole: true}
	all := map[string]Variable{}
	for _, of := range structs {
		own, _, err := s.variables(structName(of), "", true)
		if err != nil {
			return nil, err
		}
		for _, v := range own {
			all[v.Name] = v
		}
	}
	return all, nil
}

// Names are all variables of the page of the repository in root.
func Names(root string) ([]string, error) {
	page, err := variables(root)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z0-9_]+)` ").FindAllStringSubmatch(string(page), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
