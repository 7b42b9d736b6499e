package event

//go:generate go test -count=1 -run ^TestContract_GeneratedFiles_AreUpToDate$ . -update
