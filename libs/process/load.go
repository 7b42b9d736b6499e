package process

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// File is a process file or an overlay file. Its name is part of the errors.
type File struct {
	Name    string
	Content []byte
}

// Load reads every process file (*.yaml, *.yml) at the top of processes, and the overlay files of each overlay in the given order and by file
// name, and combines them. Use Named to identify folders in errors.
func Load(processes fs.FS, overlays ...fs.FS) (Set, error) {
	files, err := ReadFiles(processes)
	if err != nil {
		return nil, fmt.Errorf("load processes: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("load processes: no *.yaml file in %s", describe(processes))
	}
	var changes []File
	for _, overlay := range overlays {
		found, err := ReadFiles(overlay)
		if err != nil {
			return nil, fmt.Errorf("load overlay: %w", err)
		}
		changes = append(changes, found...)
	}
	return Combine(files, changes...)
}

// Combine reads process files, one for each operation type and named after it, applies overlay files in the given order, and validates the
// result. An overlay file has one YAML document for each operation that it changes. The error joins a *Problem with file and line for every
// problem. Without an error, the set is complete.
func Combine(processes []File, overlays ...File) (Set, error) {
	var out problems
	drafts := readProcesses(processes, &out)
	for _, f := range overlays {
		roots, _ := parseDocuments(f.Name, f.Content, &out)
		for _, root := range roots {
			applyOverlay(root, drafts)
		}
	}
	// Validate after applying the overlays: an overlay may introduce or fix a problem.
	set := Set{}
	var compile compiler
	for _, operation := range slices.Sorted(maps.Keys(drafts)) {
		if d := drafts[operation]; !d.broken {
			set[operation] = d.check(&compile, &out)
		}
	}
	if err := out.err(); err != nil {
		return nil, err
	}
	for _, p := range set {
		if err := p.seal(); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// readProcesses reads process files by operation type.
func readProcesses(files []File, out *problems) map[event.OperationType]*draft {
	drafts := map[event.OperationType]*draft{}
	for _, f := range files {
		stem := event.OperationType(strings.TrimSuffix(path.Base(f.Name), path.Ext(f.Name)))
		root, ok := parseYAML(f.Name, f.Content, out)
		if !ok {
			// Do not report problems of overlays for this operation, because they would follow from this one.
			drafts[stem] = &draft{operation: stem, broken: true}
			continue
		}
		d := readProcess(root)
		switch first, again := drafts[d.operation]; {
		case d.operation == "":
			drafts[stem] = &draft{operation: stem, broken: true}
		case again:
			out.add(d.at, "operation %s is already defined in %s", d.operation, first.at.file)
		case d.operation != stem:
			// Overlays and readers find the process of an operation by its file name.
			out.add(d.at, "operation %s must be in a file %s.yaml", d.operation, d.operation)
			d.broken = true
			drafts[d.operation] = d
		default:
			drafts[d.operation] = d
		}
	}
	return drafts
}

// ReadFiles reads the YAML files at the top of a folder, sorted by name. With Named, the name of the folder precedes that of each file.
func ReadFiles(files fs.FS) ([]File, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", describe(files), err)
	}
	var found []File
	for _, entry := range entries {
		if ext := path.Ext(entry.Name()); entry.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		content, err := fs.ReadFile(files, entry.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", describe(files), err)
		}
		name := entry.Name()
		if named, ok := files.(namedFS); ok {
			name = path.Join(named.name, name)
		}
		found = append(found, File{Name: name, Content: content})
	}
	return found, nil
}

func describe(files fs.FS) string {
	if named, ok := files.(namedFS); ok {
		return named.name
	}
	return "the folder"
}
