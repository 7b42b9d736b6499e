// Package chart holds the Helm chart of the operand, the SAP BTP service operator. It is part of the binary: nothing is
// fetched or read from a disk at run time.
package chart

import (
	"embed"
	"io/fs"
)

// root is the folder of the chart. It has the chart's name, as Helm's tools want it.
const root = "sap-btp-operator"

//go:embed sap-btp-operator/Chart.yaml sap-btp-operator/values.yaml sap-btp-operator/values.schema.json
//go:embed sap-btp-operator/crds/* sap-btp-operator/templates/*
var files embed.FS

// FS returns the files of the chart; Chart.yaml is in its root.
func FS() fs.FS {
	sub, err := fs.Sub(files, root)
	if err != nil {
		panic(err) // only a malformed name of the folder, which is a constant, makes this error
	}
	return sub
}
