package operand

import (
	"embed"
	"io/fs"
)

// chartFolder is the folder of the chart. It has the chart's name, as Helm's tools want it.
const chartFolder = "sap-btp-operator"

//go:embed sap-btp-operator/Chart.yaml sap-btp-operator/values.yaml sap-btp-operator/values.schema.json
//go:embed sap-btp-operator/crds/* sap-btp-operator/templates/*
var chartFiles embed.FS

// Chart returns the files of the operand's Helm chart; Chart.yaml is in its root. The chart is part of the binary: nothing is fetched or read
// from a disk at run time.
func Chart() fs.FS {
	sub, err := fs.Sub(chartFiles, chartFolder)
	if err != nil {
		panic(err) // impossible: the folder is a valid constant
	}
	return sub
}
