package docpage

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// methods are those that a path may have, in the order of a page.
var methods = []string{"get", "put", "post", "patch", "delete"}

func operatorAPI(root string) ([]byte, error) { return openAPI(root, "openapi.yaml", "Operator API") }

func brokerAPI(root string) ([]byte, error) {
	return openAPI(root, "broker.yaml", "Runtimes API of the broker")
}

func osbAPI(root string) ([]byte, error) { return openAPI(root, "osb.yaml", "Open Service Broker API") }

// openAPI renders an OpenAPI document.
func openAPI(root, file, title string) ([]byte, error) {
	docs := newDocuments(root)
	api, err := docs.open(file)
	if err != nil {
		return nil, err
	}
	var p page
	p.line("# %s", title)
	p.line(generated, "api/"+file)
	p.paragraph(api.get("info", "description").text())
	p.paragraph("Fields marked with * are always there, or must be. The contract itself is [api/" + file + "](../api/" + file + ").")
	for _, tag := range api.get("tags").items() {
		if err := p.tag(api, tag); err != nil {
			return nil, err
		}
	}
	p.definitions(api.get("components", "schemas"))
	return docs.page(&p)
}

// tag writes the operations that have a tag.
func (p *page) tag(api, tag node) error {
	name := tag.get("name").text()
	if name == "" {
		return errors.New("a tag has no name")
	}
	p.line("\n## %s", strings.ToUpper(name[:1])+name[1:])
	p.paragraph(tag.get("description").text())
	paths, items := api.get("paths").members()
	for i, path := range paths {
		for _, method := range methods {
			o := items[i].get(method)
			if !o.there() || !slices.Contains(o.get("tags").texts(), name) {
				continue
			}
			if err := p.operation(method, path, items[i], o); err != nil {
				return fmt.Errorf("%s %s: %w", method, path, err)
			}
		}
	}
	return nil
}

func (p *page) operation(method, path string, item, o node) error {
	p.line("\n### %s %s", strings.ToUpper(method), path)
	p.paragraph(o.get("summary").text() + ".")
	p.paragraph(o.get("description").text())
	if parameters := slices.Concat(item.get("parameters").items(), o.get("parameters").items()); len(parameters) > 0 {
		p.line("\n| Parameter | In | Value | Meaning |\n|---|---|---|---|")
		for _, parameter := range parameters {
			name := "`" + parameter.get("name").text() + "`"
			if parameter.get("required").text() == "true" {
				name += " *"
			}
			p.line("| %s | %s | %s | %s |", name, parameter.get("in").text(), cell(typeOf(parameter.get("schema"))),
				cell(parameter.get("description").text()))
		}
	}
	if err := p.content("Body", o.get("requestBody", "content")); err != nil {
		return err
	}
	p.line("\n| Answer | Meaning | Content |\n|---|---|---|")
	codes, responses := o.get("responses").members()
	for i, code := range codes {
		p.line("| %s | %s | %s |", code, cell(responses[i].get("description").text()), cell(contents(responses[i].get("content"))))
	}
	for i := range codes {
		if err := p.examples("An answer "+codes[i], responses[i].get("content")); err != nil {
			return err
		}
	}
	return nil
}

// contents are the media types of an answer, with what they hold.
func contents(content node) string {
	var out []string
	types, media := content.members()
	for i, name := range types {
		what := typeOf(media[i].get("schema"))
		if name != "application/json" {
			what += " as " + name
		}
		out = append(out, what)
	}
	return strings.Join(out, ", or ")
}

// content writes what a body is, with its fields when it has no heading of its own.
func (p *page) content(title string, content node) error {
	types, media := content.members()
	for i, name := range types {
		schema := media[i].get("schema")
		p.line("\n%s (%s): %s", title, name, typeOf(schema))
		if schema.resolved().name == "" {
			p.object(schema)
		}
	}
	return p.examples("For example", content)
}

func (p *page) examples(title string, content node) error {
	_, media := content.members()
	for _, m := range media {
		values := []node{}
		if one := m.get("example"); one.there() {
			values = append(values, one)
		}
		_, named := m.get("examples").members()
		for _, n := range named {
			values = append(values, n.get("value"))
		}
		for _, value := range values {
			text, err := value.example()
			if err != nil {
				return err
			}
			p.line("\n%s:\n\n```%s\n%s\n```", title, language(text), text)
		}
	}
	return nil
}

func language(text string) string {
	if json.Valid([]byte(text)) {
		return "json"
	}
	return "text"
}

// example is a value as a client sees it.
func (n node) example() (string, error) {
	n = n.resolved()
	if !n.there() {
		return "", nil
	}
	if n.Kind == yaml.ScalarNode {
		return strings.TrimRight(n.Value, "\n"), nil
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return "", err
	}
	raw, err := json.MarshalIndent(value, "", "  ")
	return string(raw), err
}

// definitions writes all objects that have fields.
func (p *page) definitions(schemas node) {
	p.line("\n## Objects")
	names, values := schemas.members()
	for i, name := range names {
		if len(fieldsOf(values[i])) == 0 {
			continue
		}
		p.line("\n### %s", name)
		p.paragraph(values[i].get("description").text())
		p.object(values[i])
	}
}
