package orchestrator

// BuiltInSteps says what the steps do that the orchestrator runs itself inside a transition, by name.
func BuiltInSteps() map[string]string {
	const turn = "Takes the operation in progress when no other one is on the instance"
	return map[string]string{
		"Starting":                       turn + ", with what earlier operations have saved.",
		"Init_Step":                      turn + ", with what the last operation has saved and which steps it has completed.",
		"Update_Kyma_Initialization":     turn + ".",
		"Upgrade_Kyma_Initialisation":    turn + ".",
		"Upgrade_Cluster_Initialisation": turn + ".",
	}
}
