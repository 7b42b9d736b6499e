package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File string
	// Line counts from 1; zero means the file as a whole.
	Line    int
	Message string
}

// Error is "file:line: message".
func (p *Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Message
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Message)
}

// position is where something stands in a file.
type position struct {
	file string
	line int
}

// String is "file:line".
func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// problems collects everything that is wrong, so that it is reported at once.
type problems struct {
	found []*Problem
}

func (p *problems) add(at position, format string, args ...any) {
	p.found = append(p.found, &Problem{File: at.file, Line: at.line, Message: fmt.Sprintf(format, args...)})
}

// err joins the problems in the order of the files and lines; nil if there is none.
func (p *problems) err() error {
	slices.SortStableFunc(p.found, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	errs := make([]error, len(p.found))
	for i, f := range p.found {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// Named gives the files of a folder a prefix in the errors of Load, for example the folder as the user wrote it.
func Named(name string, files fs.FS) fs.FS { return namedFS{FS: files, name: name} }

type namedFS struct {
	fs.FS
	name string
}
