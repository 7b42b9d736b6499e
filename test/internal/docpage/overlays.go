package docpage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// width is the width of paragraphs in docs/.
const width = 100

// overlays returns docs/overlays.md for the repository in root.
func overlays(root string) ([]byte, error) {
	s, err := readFormat(root)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("# Overlay reference\n" + fmt.Sprintf(generated, "libs/process") + "\n" +
		paragraph("This page lists every member of overlays and process files. [Add a step](step-author.md#3-put-it-into-the-process) is the "+
			"tutorial, [Change a process](operator.md#change-a-process) is for operators, and [steps.md](steps.md) lists the built-in stages and steps."))
	b.WriteString("\n")
	for _, t := range titles {
		fmt.Fprintf(&b, "- [%s](%s)\n", t.title, anchor(t.title))
	}
	b.WriteString("- [Check an overlay](#check-an-overlay)\n- [Completion in editors](#completion-in-editors)\n\n" +
		paragraph("Durations are written as `500ms`, `30s`, `5m` or `1h30m`, and are at least 1 ms. Names have at most 64 letters, digits, `_` and "+
			"`-`, and start with a letter or digit. Conditions are [CEL](https://cel.dev) over [these values](operator.md#change-a-process). A key that "+
			"is unknown or repeated is an error with file and line. [Time limits](step-author.md#time-limits) and [Back-off](step-author.md#back-off) "+
			"explain how budgets and intervals count, [Hold operations](operator.md#hold-operations) what `systems` are for."))
	for _, t := range titles {
		fmt.Fprintf(&b, "\n## %s\n\n", t.title)
		s.section(&b, t.of)
	}
	b.WriteString("\n## Check an overlay\n\n```sh\nkeb process check --overlays DIR --diff\n```\n\n" +
		paragraph("`keb process check` reports each mistake with file and line, and prints the stages, steps and hash of every process. With `--diff` "+
			"it also prints what the overlays change in the built-in processes, one line per step. Warnings name changes that are valid and probably not "+
			"intended: a disabled built-in step, a disabled step of a deprovisioning whose worker still creates something, a disabled `Remove_Instance`, "+
			"and budgets that add up to more than the timeout of the operation. [Test an overlay without waiting]"+
			"(step-author.md#test-an-overlay-without-waiting) runs the process with scripted answers.") +
		"\n## Completion in editors\n\n" +
		paragraph("[process.schema.json](../api/process.schema.json) is a JSON Schema for overlays and process files. An editor with the YAML language "+
			"server completes and checks a file that begins with a line such as this one; the path is that of your copy.") +
		"\n```yaml\n# yaml-language-server: $schema=../api/process.schema.json\n```\n")
	return []byte(b.String()), nil
}

// section writes the comment, the members and the example of a type.
func (s *format) section(b *strings.Builder, of string) {
	text, example := split(s.structs[of].text)
	b.WriteString(paragraph(text) + "\n| Key | Type | Default | Meaning | Example |\n|---|---|---|---|---|\n")
	var values []string
	for _, m := range s.structs[of].members {
		if m.Key == "" {
			fmt.Fprintf(b, "| %s | | | |\n", inlineText(m))
			continue
		}
		fallback := m.Default
		switch {
		case m.Required:
			fallback = "required"
		case fallback != "":
			fallback = "`" + fallback + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | `%s` |\n", m.Key, typeText(m), fallback, cell(m.Text), cell(m.Example))
		for _, v := range m.Allowed {
			if line := fmt.Sprintf("- `%s`: %s\n", v.Name, v.Text); v.Text != "" && !slices.Contains(values, line) {
				values = append(values, line)
			}
		}
	}
	if len(values) > 0 {
		b.WriteString("\nValues:\n\n" + strings.Join(values, ""))
	}
	b.WriteString("\n```yaml\n" + example + "```\n")
}

// inlineText describes members that are listed in another section.
func inlineText(m Member) string {
	text := fmt.Sprintf("those of [%s](%s)", strings.ToLower(title(m.Type)), anchor(title(m.Type)))
	if len(m.Without) > 0 {
		text += " except `" + strings.Join(m.Without, "`, `") + "`"
	}
	return text + " |"
}

// typeText is the type of a member with its allowed values.
func typeText(m Member) string {
	var text string
	switch {
	case len(m.Allowed) > 0:
		var names []string
		for _, v := range m.Allowed {
			names = append(names, "`"+v.Name+"`")
		}
		text = strings.Join(names, ", ")
	case m.Type == "time.Duration":
		text = "duration"
	case m.Type == "float64":
		text = fmt.Sprintf("number from %s to %s", m.Minimum, m.Maximum)
	case m.Type == "string":
		text = map[string]string{"name": "name", "step": "name of a step"}[m.Format]
		text = cmp.Or(text, m.Format)
	default:
		return link(m)
	}
	if m.List {
		text = "list of " + text + "s"
	}
	return text
}

// link leads to the section of a member's type.
func link(m Member) string {
	text := map[string]string{typeStep: "step", typeStage: "stage", typeChange: "change"}[m.Type]
	if m.List {
		text = "list of " + text + "s"
	}
	return fmt.Sprintf("[%s](%s)", cmp.Or(text, title(m.Type)), anchor(title(m.Type)))
}

func title(of string) string {
	return titles[slices.IndexFunc(titles, func(t struct{ of, title string }) bool { return t.of == of })].title
}

// split returns the text of a comment on one line, and its example.
func split(comment string) (text, example string) {
	var words []string
	for line := range strings.Lines(comment) {
		if code, ok := strings.CutPrefix(line, "\t"); ok {
			example += code
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	return strings.Join(words, " "), example
}

// paragraph breaks text into lines.
func paragraph(text string) string {
	var b strings.Builder
	at := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case at > 0 && at+1+len(word) > width:
			b.WriteString("\n")
			at = 0
		case at > 0:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String() + "\n"
}
