-- What a service of schema 0001 had written on 2026-11-25 (quickstart and its snapshot, gang, a comparison, a replay,
-- a calendar, a reservation, a calibration, a forecaster whose record is shortened, measurements); one plan is unfinished,
-- and the last one was deleted.
PRAGMA application_id = 1398034263;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE calendars (
	name VARCHAR NOT NULL, 
	version INTEGER NOT NULL, 
	updated_at_s FLOAT NOT NULL, 
	cluster TEXT NOT NULL, 
	entries TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "calendars" VALUES('main',2,1.79562230993462371825e+09,'{"gpu_types":[{"name":"t4","memory_bytes":16000000000,"peak_flops_per_s":65000000000000.0,"intra_node_bandwidth_bytes_per_s":15750000000.0,"inter_node_bandwidth_bytes_per_s":6250000000.0},{"name":"a100","memory_bytes":40000000000,"peak_flops_per_s":312000000000000.0,"intra_node_bandwidth_bytes_per_s":300000000000.0,"inter_node_bandwidth_bytes_per_s":200000000000.0}],"nodes":[{"id":"t4-1","gpu_type":"t4","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"a100-1","gpu_type":"a100","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0}','[{"name":"spine","kind":"maintenance","from_time":"2026-12-01T06:00:00Z","until_time":"2026-12-01T10:00:00Z","nodes":["t4-1"],"shape":null,"hard":true,"owner":null}]');
CREATE TABLE calibrations (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	document TEXT NOT NULL, 
	UNIQUE (name)
);
INSERT INTO "calibrations" VALUES(1,'site','{"name":"site","created_at":"2026-11-25T15:58:30.453927Z","source":"measurement 1: 20 s an iteration of PP4 DP4 TP1 (10+10+10+10 layers, 64 x 4) on h100","links":{"self":"/v1/calibrations/site"},"factors":[{"name":"computation","factor":1.1831679169615221,"deviation":0.06811132438275373},{"name":"memory","factor":1.0768044207458596,"deviation":0.18616095625475998},{"name":"launch","factor":1.0412553009425896,"deviation":0.5015705084856857},{"name":"link","factor":1.000927268812708,"deviation":0.1479992346193144},{"name":"network","factor":1.0000456411442282,"deviation":0.24999999890129132},{"name":"overlap","factor":1.0,"deviation":0.303}],"num_points":1,"gpu_type":"h100","calibration":{"gpus":{},"adjustment":{"computation":1.1831679169615221,"memory":1.0768044207458596,"launch":1.0412553009425896,"link":1.000927268812708,"network":1.0000456411442282,"overlap":1.0,"covariance":[[0.004639152509172703,-0.003282407298434594,-0.0017932685018233027,-0.00004111290120304712,-2.024512024375923e-6,0.0],[-0.003282407298434594,0.034655901633686655,-0.00078895026679938,-0.000018087661909000962,-8.906860852939465e-7,0.0],[-0.0017932685018233027,-0.00078895026679938,0.2515729749825894,-9.881782309133173e-6,-4.866060657772952e-7,0.0],[-0.00004111290120304712,-0.000018087661909000962,-9.881782309133173e-6,0.021903773447902876,-1.1156046674976189e-8,0.0],[-2.024512024375923e-6,-8.906860852939465e-7,-4.866060657772952e-7,-1.1156046674976189e-8,0.06249999945064567,0.0],[0.0,0.0,0.0,0.0,0.0,0.091809]],"residual":null,"num_points":1},"sizes":null,"measured_at_s":1795622310.0,"source":"measurement 1: 20 s an iteration of PP4 DP4 TP1 (10+10+10+10 layers, 64 x 4) on h100"},"measure_next":{"gpu_type":"h100","notation":"PP1 DP8 TP2 (40 layers, 32 x 8)","iteration_s":18.87924273292558,"iteration_low_s":15.705017583946713,"iteration_high_s":22.695027513566945,"expected_gain":0.021136898632220458,"rival":"PP8 DP2 TP1 (5+5+5+5+5+5+5+5 layers, 128 x 2)","detail":"predicted 1.1 % faster than PP8 DP2 TP1 (5+5+5+5+5+5+5+5 layers, 128 x 2), by a difference known to 11.2 %; measured, to 9.5 %. The choice is expected to become 2.1 % faster","plan":{"stages":[{"num_layers":40,"replicas":[{"node":"0","gpu_type":"h100","gpus":[0,1],"local_batch":1},{"node":"0","gpu_type":"h100","gpus":[2,3],"local_batch":1},{"node":"0","gpu_type":"h100","gpus":[4,5],"local_batch":1},{"node":"0","gpu_type":"h100","gpus":[6,7],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[0,1],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[2,3],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[4,5],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[6,7],"local_batch":1}],"checkpointing":null,"recomputed_layers":null}],"num_micro_batches":32,"virtual_stages":1,"schedule":"1f1b","context_parallel":1,"expert_parallel":1,"training":null}},"warnings":[],"input_hash":"sha256:90878871605f5bdac24d59b704e225b2c267c9829ea8d0ee650013de0fe6fadf","version":"0.1.0"}');
CREATE TABLE comparisons (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	final BOOLEAN NOT NULL, 
	document TEXT NOT NULL, 
	UNIQUE (id)
);
INSERT INTO "comparisons" VALUES(1,'comparison-76ad6c2439f647809e24f89c1fe0c4e0',1,'{"id":"comparison-76ad6c2439f647809e24f89c1fe0c4e0","status":"succeeded","policy":"sia","solvers":["highs"],"times":{"queued":"2026-11-25T15:58:10.433481Z","running":"2026-11-25T15:58:10.437383Z","finished":"2026-11-25T15:58:11.302302Z"},"links":{"self":"/v1/solver-comparisons/comparison-76ad6c2439f647809e24f89c1fe0c4e0","figure":"/v1/solver-comparisons/comparison-76ad6c2439f647809e24f89c1fe0c4e0/figure.svg"},"instance":{"num_nodes":2,"num_gpus":8,"num_jobs":3},"options":{"time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0},"version":"0.1.0","runs":[{"solver":"highs","solver_used":{"name":"highs","version":"1.15.1"},"termination":{"reason":"optimal","limit":null},"sense":"minimize","objective":1.3949170654651162,"bound":1.394917065465116,"relative_gap":1.5918122333028705e-16,"proven_optimal":true,"verified":true,"certificate":"proven optimal by highs (1.15.1): HiGHS: Optimal","phases_ms":{"validate":0.5873950000250261,"performance":0.753353999925821,"build":3.8065739998955905,"solve":8.240999000008742,"place":0.635685000020203,"verify":0.4115870000305222},"phases_cpu_ms":{"validate":0.5825149999999502,"performance":0.7496270000000305,"build":3.7262850000000514,"solve":8.339524000000043,"place":0.6332599999999688,"verify":0.40892200000008927},"total_ms":14.435593999905905,"cpu_ms":14.588097999999938,"first_incumbent_ms":0.5509960000154024,"peak_memory_bytes":67895296,"size":{"num_columns":16,"num_rows":5,"num_nonzeros":32,"num_nodes":1},"history":[{"elapsed_ms":1.9600530000616345,"objective":1.5755248877183212,"bound":null},{"elapsed_ms":7.446266999977524,"objective":1.3949170654651162,"bound":0.5285825346634123},{"elapsed_ms":8.240999000008742,"objective":1.3949170654651162,"bound":1.394917065465116}],"failure":null}],"agreement":{"agree":null,"num_proven":1,"statement":"only highs proved its answer, and no other answer contradicts it","errors":[]},"longest_s":190.0,"input_hash":"sha256:7c1d8b26dc11d35e2f16a46d54b5b4994f40eb27ce489405597e2adf2826e9d6","failure":null}');
CREATE TABLE forecasters (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	final BOOLEAN NOT NULL, 
	document TEXT NOT NULL, 
	record TEXT, 
	report TEXT, 
	UNIQUE (name)
);
INSERT INTO "forecasters" VALUES(1,'short',1,'{"name":"short","status":"succeeded","history":"h","times":{"queued":"2026-11-25T15:58:58.252530Z","running":"2026-11-25T15:58:58.255465Z","finished":"2026-11-25T15:59:01.546170Z"},"links":{"self":"/v1/forecasters/short","report":"/v1/forecasters/short/report","record":"/v1/forecasters/short/record","figure":"/v1/forecasters/short/figure.svg","figure_png":"/v1/forecasters/short/figure.png"},"num_jobs":300,"time_limit_s":600.0,"input_hash":"sha256:fc64ec3b54f26e06ce7fa078c1de8fbd59bf16289d6041f27c1e536582b2417a","version":"0.1.0","digest":"6e25326ec6dc1975595485203c5c945fa1c7d434658c078a0c03a4fd0b83bca8","origin_s":1772323200.0,"trained_until_s":18230.0,"failure":null}','{"format": 1, "shortened": true}','{"num_learned": 240, "num_held_out": 30, "num_tested": 30, "num_running": 0, "left_out": {}, "scores": [{"predictor": "forecaster", "pinball": 0.017670572890009867, "pinball_min": 0.06812377372094727, "coverage_90": 0.8333333333333334, "rmse_classes": 0.0, "observed": [0.0, 0.03333333333333333, 0.1, 0.2, 0.2, 0.3, 0.43333333333333335, 0.6666666666666666, 0.7333333333333333, 0.8333333333333334, 0.9333333333333333, 0.9666666666666667, 1.0]}, {"predictor": "history", "pinball": 0.11408365787129683, "pinball_min": 0.47854123931623926, "coverage_90": 0.9, "rmse_classes": 0.0, "observed": [0.1, 0.2, 0.3, 0.36666666666666664, 0.43333333333333335, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]}, {"predictor": "same group", "pinball": 0.11371195638021579, "pinball_min": 0.4768675427350427, "coverage_90": 0.9, "rmse_classes": 0.0, "observed": [0.1, 0.16666666666666666, 0.23333333333333334, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0]}, {"predictor": "last jobs", "pinball": 0.1115529524764345, "pinball_min": 0.46735032051282055, "coverage_90": 0.9, "rmse_classes": 0.0, "observed": [0.1, 0.1, 0.2, 0.3, 0.36666666666666664, 0.4666666666666667, 0.5666666666666667, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0]}], "probabilities": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99], "covered": 0.9, "class_s": 600.0, "num_classes": 25}');
CREATE TABLE idempotency_keys (
	collection VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	input_hash VARCHAR NOT NULL, 
	resource_id VARCHAR NOT NULL, 
	PRIMARY KEY (collection, "key")
)
 WITHOUT ROWID

;
INSERT INTO "idempotency_keys" VALUES('/v1/solver-comparisons','c','sha256:7c1d8b26dc11d35e2f16a46d54b5b4994f40eb27ce489405597e2adf2826e9d6','comparison-76ad6c2439f647809e24f89c1fe0c4e0');
CREATE TABLE measured_runs (
	id INTEGER NOT NULL, 
	job_id VARCHAR NOT NULL, 
	launch BIGINT NOT NULL, 
	document TEXT NOT NULL, 
	num_records BIGINT NOT NULL, 
	first_step BIGINT, 
	since_s FLOAT, 
	until_s FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (job_id, launch)
);
INSERT INTO "measured_runs" VALUES(1,'llm',1795621738147,'{"launch":1795621738147,"device":"cpu","transformer":{"global_batch":8,"micro_batch":null,"precision":"fp32","optimizer":null,"zero_stage":null,"software":null,"model":null,"config":null,"num_layers":4,"hidden_size":128,"vocabulary_size":1000,"sequence_length":64,"num_heads":null,"num_kv_heads":null,"head_size":null,"value_head_size":null,"rotary_head_size":null,"query_rank":null,"kv_rank":null,"query_key_norms":null,"attention_window":null,"global_attention_interval":null,"feed_forward_size":null,"gated":null,"normalisation":null,"post_norms":null,"biases":null,"positions":null,"tied_embeddings":null,"num_experts":null,"experts_per_token":null,"expert_interval":null,"first_dense_layers":null,"expert_feed_forward_size":null,"shared_expert_size":null,"capacity_factor":null,"checkpointing":null,"attention":null,"sequence_parallel":null},"plan":{"stages":[{"num_layers":2,"replicas":[{"node":"n0","gpu_type":"cpu","gpus":[0],"local_batch":4}],"checkpointing":null,"recomputed_layers":null},{"num_layers":2,"replicas":[{"node":"n0","gpu_type":"cpu","gpus":[1],"local_batch":4}],"checkpointing":null,"recomputed_layers":null}],"num_micro_batches":2,"virtual_stages":1,"schedule":"1f1b","context_parallel":1,"expert_parallel":1,"training":null},"cluster":{"gpu_types":[{"name":"cpu","memory_bytes":17179869184,"peak_flops_per_s":1000000000000.0,"intra_node_bandwidth_bytes_per_s":4000000000.0,"inter_node_bandwidth_bytes_per_s":1000000000.0}],"nodes":[{"id":"n0","gpu_type":"cpu","num_gpus":2,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"n1","gpu_type":"cpu","num_gpus":2,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0},"own_program":false}',20,1,1795621739.147,1795621748.447);
CREATE TABLE measured_steps (
	run INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	rank INTEGER NOT NULL, 
	host VARCHAR NOT NULL, 
	peak_memory_bytes BIGINT NOT NULL, 
	started_at_s FLOAT NOT NULL, 
	backward_s FLOAT NOT NULL, 
	forward_s FLOAT NOT NULL, 
	large_gradient_square FLOAT NOT NULL, 
	learning_rate FLOAT NOT NULL, 
	load_s FLOAT NOT NULL, 
	loss FLOAT NOT NULL, 
	optimizer_s FLOAT NOT NULL, 
	receive_s FLOAT NOT NULL, 
	reduction_s FLOAT NOT NULL, 
	send_s FLOAT NOT NULL, 
	small_gradient_square FLOAT NOT NULL, 
	step_s FLOAT NOT NULL, 
	tokens_per_s FLOAT NOT NULL, 
	PRIMARY KEY (run, step, rank), 
	FOREIGN KEY(run) REFERENCES measured_runs (id)
)
 WITHOUT ROWID

;
INSERT INTO "measured_steps" VALUES(1,1,0,'n0',700000000,1795621739.147,0.16,0.08,3.0,0.0003,0.002,6.9,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,1,1,'n0',700000001,1795621739.147,0.16,0.08,3.0,0.0003,0.002,6.9,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,2,0,'n0',700000000,1795621740.147,0.16,0.08,3.0,0.0003,0.002,6.8,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,2,1,'n0',700000001,1795621740.147,0.16,0.08,3.0,0.0003,0.002,6.8,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,3,0,'n0',700000000,1795621741.147,0.16,0.08,3.0,0.0003,0.002,6.7,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,3,1,'n0',700000001,1795621741.147,0.16,0.08,3.0,0.0003,0.002,6.7,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,4,0,'n0',700000000,1795621742.147,0.16,0.08,3.0,0.0003,0.002,6.6,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,4,1,'n0',700000001,1795621742.147,0.16,0.08,3.0,0.0003,0.002,6.6,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,5,0,'n0',700000000,1795621743.147,0.16,0.08,3.0,0.0003,0.002,6.5,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,5,1,'n0',700000001,1795621743.147,0.16,0.08,3.0,0.0003,0.002,6.5,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,6,0,'n0',700000000,1795621744.147,0.16,0.08,3.0,0.0003,0.002,6.4,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,6,1,'n0',700000001,1795621744.147,0.16,0.08,3.0,0.0003,0.002,6.4,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,7,0,'n0',700000000,1795621745.147,0.16,0.08,3.0,0.0003,0.002,6.3,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,7,1,'n0',700000001,1795621745.147,0.16,0.08,3.0,0.0003,0.002,6.3,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,8,0,'n0',700000000,1795621746.147,0.16,0.08,3.0,0.0003,0.002,6.2,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,8,1,'n0',700000001,1795621746.147,0.16,0.08,3.0,0.0003,0.002,6.2,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,9,0,'n0',700000000,1795621747.147,0.16,0.08,3.0,0.0003,0.002,6.1,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,9,1,'n0',700000001,1795621747.147,0.16,0.08,3.0,0.0003,0.002,6.1,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,10,0,'n0',700000000,1795621748.147,0.16,0.08,3.0,0.0003,0.002,6.0,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
INSERT INTO "measured_steps" VALUES(1,10,1,'n0',700000001,1795621748.147,0.16,0.08,3.0,0.0003,0.002,6.0,0.02,0.02,0.0,0.001,3.0,0.3,1.70666666666666674246e+03);
CREATE TABLE measured_whole_steps (
	run INTEGER NOT NULL, 
	step BIGINT NOT NULL, 
	started_at_s FLOAT NOT NULL, 
	step_s FLOAT NOT NULL, 
	loss FLOAT, 
	PRIMARY KEY (run, step), 
	FOREIGN KEY(run) REFERENCES measured_runs (id)
)
 WITHOUT ROWID

;
CREATE TABLE noted_plans (
	plan_id VARCHAR NOT NULL, 
	notes TEXT NOT NULL, 
	PRIMARY KEY (plan_id)
);
CREATE TABLE plans (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	policy VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	queued_at_s FLOAT NOT NULL, 
	building_at_s FLOAT, 
	solving_at_s FLOAT, 
	finished_at_s FLOAT, 
	version VARCHAR NOT NULL, 
	input TEXT NOT NULL, 
	input_hash VARCHAR NOT NULL, 
	options TEXT NOT NULL, 
	idempotency_key VARCHAR, 
	objective FLOAT, 
	bound FLOAT, 
	relative_gap FLOAT, 
	outcome TEXT, 
	timings TEXT NOT NULL, 
	failure TEXT, 
	events TEXT, 
	UNIQUE (id), 
	UNIQUE (idempotency_key)
);
INSERT INTO "plans" VALUES(1,'plan-3ab2ba6beaf743799935ca783a2c0c57','sia','succeeded',1.79562228965830612183e+09,1.79562228967305088046e+09,1.79562228968747878074e+09,1.79562228970250558853e+09,'0.1.0','{"policy":"sia","parameters":{"epsilon":0.05,"fairness_power":-0.5,"queue_penalty":1.1,"double_at_most":false,"restart_price":1.0,"price_suspension":false,"objective":"goodput","longest_wait_s":21600.0,"prices":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"},"snapshot":{"cluster":{"gpu_types":[{"name":"t4","memory_bytes":16000000000,"peak_flops_per_s":65000000000000.0,"intra_node_bandwidth_bytes_per_s":15750000000.0,"inter_node_bandwidth_bytes_per_s":6250000000.0},{"name":"a100","memory_bytes":40000000000,"peak_flops_per_s":312000000000000.0,"intra_node_bandwidth_bytes_per_s":300000000000.0,"inter_node_bandwidth_bytes_per_s":200000000000.0}],"nodes":[{"id":"t4-1","gpu_type":"t4","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"a100-1","gpu_type":"a100","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0},"jobs":[{"id":"resnet","min_gpus":1,"max_gpus":null,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":250.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":472.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":4,"value":893.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":1400.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":2640.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":4,"value":5000.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null},{"id":"bert","min_gpus":1,"max_gpus":null,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":9.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":17.5,"num_nodes":null},{"gpu_type":"t4","num_gpus":4,"value":34.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":95.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":184.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":4,"value":358.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null},{"id":"recommender","min_gpus":1,"max_gpus":2,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":30000.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":40000.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":42000.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":56000.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null}],"taken_at":null,"calendar":[],"forecaster":null}}','sha256:e80c13e46d6af225f366ae85e5560f1eef059760ae50683760890054c824c497','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}','first',1.39491706546511617936e+00,1.39491706546511595732e+00,1.59181223330287054985e-16,'{"termination":{"reason":"optimal","limit":null},"warnings":[],"sense":"minimize","objective":1.3949170654651162,"bound":1.394917065465116,"relative_gap":1.5918122333028705e-16,"proven_optimal":true,"verified":true,"score":[{"term":"utility","job_id":"resnet","value":0.30772872744833185},{"term":"utility","job_id":"bert","value":0.2211629342323457},{"term":"utility","job_id":"recommender","value":0.8660254037844386}],"allocations":[{"job_id":"resnet","gpu_type":"a100","num_gpus":2,"gpus":{"a100-1":[0,1]},"change":"started","previous":null,"batch_size":null,"local_batch_size":null,"accumulation_steps":null,"expected_goodput":2640.0,"parallel_plan":null,"launch":null,"expansions":[],"ranks":null},{"job_id":"bert","gpu_type":"a100","num_gpus":2,"gpus":{"a100-1":[2,3]},"change":"started","previous":null,"batch_size":null,"local_batch_size":null,"accumulation_steps":null,"expected_goodput":184.0,"parallel_plan":null,"launch":null,"expansions":[],"ranks":null},{"job_id":"recommender","gpu_type":"t4","num_gpus":2,"gpus":{"t4-1":[0,1]},"change":"started","previous":null,"batch_size":null,"local_batch_size":null,"accumulation_steps":null,"expected_goodput":40000.0,"parallel_plan":null,"launch":null,"expansions":[],"ranks":null}],"unplaced":[],"communication":null,"ahead":[],"conflicts":[],"size":{"num_columns":16,"num_rows":5,"num_nonzeros":32,"num_nodes":1},"solver":{"name":"decomposition","version":"HiGHS 1.15.1"},"certificate":"proven optimal by decomposition (HiGHS 1.15.1): 3 blocks in 3 classes, 2 coupling rows; 1 cores, the last with 16 of 16 columns","prices":{}}','{"accept_ms":29.21568700003263,"queue_ms":6.452294999917285,"phases_ms":{"validate":0.026038999976663035,"performance":0.8412380000208941,"build":3.309238000042569,"solve":16.289978000031624,"place":0.7130889999871215,"verify":0.8193070000288571},"cpu_ms":21.906647000000223,"first_incumbent_ms":0.5094800000051691,"total_ms":73.4151537053549}',NULL,'[{"id": 1, "name": "state", "data": {"status": "queued"}}, {"id": 2, "name": "state", "data": {"status": "building"}}, {"id": 3, "name": "state", "data": {"status": "solving"}}, {"id": 4, "name": "incumbent", "data": {"objective": 1.5755248877183212, "bound": null, "relative_gap": null, "elapsed_s": 0.003653217999953995}}, {"id": 5, "name": "incumbent", "data": {"objective": 1.3949170654651162, "bound": null, "relative_gap": null, "elapsed_s": 0.014747533999980078}}, {"id": 6, "name": "state", "data": {"status": "succeeded"}}]');
INSERT INTO "plans" VALUES(2,'plan-747aa9b493b544df964f1311e199ccb3','gang','succeeded',1795622290.26836,1.79562229027757215495e+09,1.7956222902834048271e+09,1.79562229028428220747e+09,'0.1.0','{"policy":"gang","parameters":{"epsilon":0.05,"order":"fifo","promotion_after_s":null,"priority_ratio":2.0,"backfill":"easy","default_remaining_s":null,"preemption":false,"service_thresholds":[3250.0,7200.0],"quotas":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"},"snapshot":{"snapshot_id":"snapshot-80a664e00d5ee945697bb5fff938119f","calendar":null,"forecaster":null}}','sha256:32c06419b934b64b68c107ffe1b9e93d951f78aff64b7c84bc825b7d0a77c31d','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}',NULL,3.0,3.0,0.0,'{"termination":{"reason":"optimal","limit":null},"warnings":[{"code":"unknown_remaining_s","pointer":"/snapshot/jobs/0/remaining_s","detail":"is not given for 3 jobs: nobody can be promised their GPUs, and they are backfilled only where they are in nobody''s way; give it, or the parameter default_remaining_s","severity":"warning"},{"code":"ignored_field","pointer":"/snapshot/jobs/2/max_gpus","detail":"is not used by gang, and is given for 1 job; used by sia, arnold, arena, arena-ilp, suika, suika-ilp, elasticflow, elasticflow-ilp","severity":"warning"},{"code":"ignored_field","pointer":"/snapshot/jobs/0/performance","detail":"is not used by gang, and is given for 3 jobs; used by sia, arena, arena-ilp, gavel, gavel-ilp, elasticflow, elasticflow-ilp","severity":"warning"}],"sense":"maximize","objective":3.0,"bound":3.0,"relative_gap":0.0,"proven_optimal":true,"verified":true,"score":[{"term":"started","job_id":"resnet","value":1.0},{"term":"started","job_id":"bert","value":1.0},{"term":"started","job_id":"recommender","value":1.0}],"allocations":[{"job_id":"resnet","gpu_type":"t4","num_gpus":1,"gpus":{"t4-1":[0]},"change":"started","previous":null,"batch_size":null,"local_batch_size":null,"accumulation_steps":null,"expected_goodput":null,"parallel_plan":null,"launch":null,"expansions":[],"ranks":null},{"job_id":"bert","gpu_type":"t4","num_gpus":1,"gpus":{"t4-1":[1]},"change":"started","previous":null,"batch_size":null,"local_batch_size":null,"accumulation_steps":null,"expected_goodput":null,"parallel_plan":null,"launch":null,"expansions":[],"ranks":null},{"job_id":"recommender","gpu_type":"t4","num_gpus":1,"gpus":{"t4-1":[2]},"change":"started","previous":null,"batch_size":null,"local_batch_size":null,"accumulation_steps":null,"expected_goodput":null,"parallel_plan":null,"launch":null,"expansions":[],"ranks":null}],"unplaced":[],"communication":null,"ahead":[],"conflicts":[],"size":{"num_columns":0,"num_rows":0,"num_nonzeros":0,"num_nodes":null},"solver":{"name":"heuristic","version":"0.1.0"},"certificate":"proven optimal by heuristic (0.1.0): 3 jobs started in order, of 0 others 0 backfilled; bound by decomposition (HiGHS 1.15.1): ","prices":{}}','{"accept_ms":9.893917999988844,"queue_ms":7.183226999927683,"phases_ms":{"validate":0.02154100002371706,"decide":0.5804219999845373,"build":0.8580090000123164,"solve":1.2226589999499993,"place":0.16751199996178912,"verify":0.4971560000512909},"cpu_ms":3.4379960000001653,"first_incumbent_ms":0.0,"total_ms":25.816225968128492}',NULL,'[{"id": 1, "name": "state", "data": {"status": "queued"}}, {"id": 2, "name": "state", "data": {"status": "building"}}, {"id": 3, "name": "state", "data": {"status": "solving"}}, {"id": 4, "name": "incumbent", "data": {"objective": 3.0, "bound": null, "relative_gap": null, "elapsed_s": 0.0}}, {"id": 5, "name": "state", "data": {"status": "succeeded"}}]');
INSERT INTO "plans" VALUES(3,'plan-left-behind','sia','queued',1.79562228965830612183e+09,NULL,NULL,NULL,'0.1.0','{"policy":"sia","parameters":{"epsilon":0.05,"fairness_power":-0.5,"queue_penalty":1.1,"double_at_most":false,"restart_price":1.0,"price_suspension":false,"objective":"goodput","longest_wait_s":21600.0,"prices":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"},"snapshot":{"cluster":{"gpu_types":[{"name":"t4","memory_bytes":16000000000,"peak_flops_per_s":65000000000000.0,"intra_node_bandwidth_bytes_per_s":15750000000.0,"inter_node_bandwidth_bytes_per_s":6250000000.0},{"name":"a100","memory_bytes":40000000000,"peak_flops_per_s":312000000000000.0,"intra_node_bandwidth_bytes_per_s":300000000000.0,"inter_node_bandwidth_bytes_per_s":200000000000.0}],"nodes":[{"id":"t4-1","gpu_type":"t4","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"a100-1","gpu_type":"a100","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0},"jobs":[{"id":"resnet","min_gpus":1,"max_gpus":null,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":250.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":472.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":4,"value":893.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":1400.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":2640.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":4,"value":5000.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null},{"id":"bert","min_gpus":1,"max_gpus":null,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":9.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":17.5,"num_nodes":null},{"gpu_type":"t4","num_gpus":4,"value":34.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":95.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":184.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":4,"value":358.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null},{"id":"recommender","min_gpus":1,"max_gpus":2,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":30000.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":40000.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":42000.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":56000.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null}],"taken_at":null,"calendar":[],"forecaster":null}}','sha256:e80c13e46d6af225f366ae85e5560f1eef059760ae50683760890054c824c497','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}','second',NULL,NULL,NULL,NULL,'{"accept_ms":29.21568700003263,"queue_ms":6.452294999917285,"phases_ms":{"validate":0.026038999976663035,"performance":0.8412380000208941,"build":3.309238000042569,"solve":16.289978000031624,"place":0.7130889999871215,"verify":0.8193070000288571},"cpu_ms":21.906647000000223,"first_incumbent_ms":0.5094800000051691,"total_ms":73.4151537053549}',NULL,NULL);
CREATE TABLE plans_begun_again (
	plan_id VARCHAR NOT NULL, 
	times INTEGER NOT NULL, 
	PRIMARY KEY (plan_id)
);
CREATE TABLE posted_plans (
	plan_id VARCHAR NOT NULL, 
	input_hash VARCHAR NOT NULL, 
	PRIMARY KEY (plan_id)
);
CREATE TABLE replay_results (
	replays_id VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	"row" TEXT NOT NULL, 
	result TEXT NOT NULL, 
	PRIMARY KEY (replays_id, number)
)
 WITHOUT ROWID

;
INSERT INTO "replay_results" VALUES('replays-bc14ad1b40b74a00b75eee1e4fa3b083',0,'{"policy":"gang","parameters":{},"seed":0,"status":"succeeded","num_ended":2,"now_s":150.0,"elapsed_s":0.1735390640000105,"figures":{"trace":"four","policy":"gang","parameters":{},"seed":0,"num_gpus":8,"horizon_s":null,"num_jobs":2,"num_finished":2,"num_left_out":0,"completion_s":{"mean":120.0,"median":120.0,"p95":138.0,"p99":139.6,"most":140.0},"weighted_completion_s":126.66666666666667,"floor_completion_s":75.0,"waited_s":{"mean":45.0,"median":45.0,"p95":85.5,"p99":89.1,"most":90.0},"makespan_s":150.0,"utilisation":0.6666666666666666,"gpu_hours":0.2222222222222222,"restarts":{},"failures":0,"num_deadlines":0,"num_deadlines_met":0,"most_unfair":1.7043478260869567,"unfair_share":0.5,"decisions":{"num_planned":2,"num_skipped":2,"total_cpu_s":0.16705758199999998,"cpu_s":{"mean":0.08352879099999999,"median":0.08352879099999999,"p95":0.15464587750000003,"p99":0.16096739630000004,"most":0.16254777600000003}},"other_cpu_s":0.0029425130000000355,"stopped_s":null},"failure":null}','{"trace": "four", "policy": "gang", "parameters": {}, "seed": 0, "num_gpus": 8, "horizon_s": null, "num_jobs": 2, "num_finished": 2, "num_left_out": 0, "completion_s": {"mean": 120.0, "median": 120.0, "p95": 138.0, "p99": 139.6, "most": 140.0}, "weighted_completion_s": 126.66666666666667, "floor_completion_s": 75.0, "waited_s": {"mean": 45.0, "median": 45.0, "p95": 85.5, "p99": 89.1, "most": 90.0}, "makespan_s": 150.0, "utilisation": 0.6666666666666666, "gpu_hours": 0.2222222222222222, "restarts": {}, "failures": 0, "num_deadlines": 0, "num_deadlines_met": 0, "most_unfair": 1.7043478260869567, "unfair_share": 0.5, "decisions": {"num_planned": 2, "num_skipped": 2, "total_cpu_s": 0.16705758199999998, "cpu_s": {"mean": 0.08352879099999999, "median": 0.08352879099999999, "p95": 0.15464587750000003, "p99": 0.16096739630000004, "most": 0.16254777600000003}}, "other_cpu_s": 0.0029425130000000355, "jobs": [{"id": "a", "num_gpus": 4, "submitted_s": 0.0, "started_s": 0.0, "ended_s": 100.0, "completion_s": 100.0, "waited_s": 0.0, "restarts": {}, "num_failures": 0, "gpu_s": 400.0, "alone_s": 100.0, "met_deadline": null, "unfairness": 1.0, "spans": [{"start_s": 0.0, "end_s": 100.0, "gpus": [{"node": "a100-0", "gpus": [0, 1, 2, 3]}]}]}, {"id": "b", "num_gpus": 8, "submitted_s": 10.0, "started_s": 100.0, "ended_s": 150.0, "completion_s": 140.0, "waited_s": 90.0, "restarts": {}, "num_failures": 0, "gpu_s": 400.0, "alone_s": 50.0, "met_deadline": null, "unfairness": 1.7043478260869567, "spans": [{"start_s": 100.0, "end_s": 150.0, "gpus": [{"node": "a100-0", "gpus": [0, 1, 2, 3, 4, 5, 6, 7]}]}]}], "stopped_s": null}');
CREATE TABLE replays (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	final BOOLEAN NOT NULL, 
	document TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	events TEXT, 
	UNIQUE (id)
);
INSERT INTO "replays" VALUES(1,'replays-bc14ad1b40b74a00b75eee1e4fa3b083',1,'{"id":"replays-bc14ad1b40b74a00b75eee1e4fa3b083","status":"succeeded","trace":"four","policies":["gang"],"seeds":[0],"times":{"queued":"2026-11-25T15:58:28.582211Z","running":"2026-11-25T15:58:28.585938Z","finished":"2026-11-25T15:58:29.556924Z"},"links":{"self":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083","events":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/events","report":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/report","figure":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/figure.svg","figure_png":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/figure.png"},"num_gpus":8,"num_jobs":2,"num_left_out":0,"time_limit_s":600.0,"longest_s":1326.0,"input_hash":"sha256:e2b07902ceb71291989c287e292cf1c980357336aa1c383e089cf4bd0786fbe2","version":"0.1.0","progress":{"num_jobs":2,"num_ended":2,"num_replays":1,"num_done":1},"replays":[{"policy":"gang","parameters":{},"seed":0,"status":"succeeded","num_ended":2,"now_s":150.0,"elapsed_s":0.1735390640000105,"figures":{"trace":"four","policy":"gang","parameters":{},"seed":0,"num_gpus":8,"horizon_s":null,"num_jobs":2,"num_finished":2,"num_left_out":0,"completion_s":{"mean":120.0,"median":120.0,"p95":138.0,"p99":139.6,"most":140.0},"weighted_completion_s":126.66666666666667,"floor_completion_s":75.0,"waited_s":{"mean":45.0,"median":45.0,"p95":85.5,"p99":89.1,"most":90.0},"makespan_s":150.0,"utilisation":0.6666666666666666,"gpu_hours":0.2222222222222222,"restarts":{},"failures":0,"num_deadlines":0,"num_deadlines_met":0,"most_unfair":1.7043478260869567,"unfair_share":0.5,"decisions":{"num_planned":2,"num_skipped":2,"total_cpu_s":0.16705758199999998,"cpu_s":{"mean":0.08352879099999999,"median":0.08352879099999999,"p95":0.15464587750000003,"p99":0.16096739630000004,"most":0.16254777600000003}},"other_cpu_s":0.0029425130000000355,"stopped_s":null},"failure":null}],"failure":null}','{"gpu_types": [{"name": "a100", "memory_bytes": 80000000000, "peak_flops_per_s": 312000000000000.0, "intra_node_bandwidth_bytes_per_s": 300000000000.0, "inter_node_bandwidth_bytes_per_s": 25000000000.0}], "nodes": [{"id": "a100-0", "gpu_type": "a100", "num_gpus": 8, "gpus_in_use": [], "state": "up", "path": [], "state_reason": null}], "tiers": [], "minipod_tier": null, "core_bandwidth_fraction": 1.0}','[{"id": 1, "name": "state", "data": {"status": "queued", "replay": null}}, {"id": 2, "name": "state", "data": {"status": "running", "replay": null}}, {"id": 3, "name": "state", "data": {"status": "running", "replay": 0}}, {"id": 4, "name": "progress", "data": {"replay": 0, "num_jobs": 2, "num_ended": 0, "now_s": 0.0, "elapsed_s": 0.166050278000057}}, {"id": 5, "name": "state", "data": {"status": "succeeded", "replay": 0}}, {"id": 6, "name": "state", "data": {"status": "succeeded", "replay": null}}]');
CREATE TABLE reservations (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	calendar VARCHAR NOT NULL, 
	holds INTEGER NOT NULL, 
	until_s FLOAT, 
	document TEXT NOT NULL, 
	UNIQUE (id)
);
INSERT INTO "reservations" VALUES(1,'reservation-13ecaf05df994aa1aeb0176956e7ad1e','main',1,1799222400.0,'{"id":"reservation-13ecaf05df994aa1aeb0176956e7ad1e","cluster":"main","status":"confirmed","entry":{"name":"r","kind":"reservation","from_time":"2026-12-07T09:00:00+01:00","until_time":"2027-01-06T09:00:00+01:00","nodes":["a100-1"],"shape":null,"hard":true,"owner":null},"plan_id":null,"job_id":null,"created_at":"2026-11-25T15:58:29.744684Z","confirmed_at":"2026-11-25T15:58:29.934624Z","canceled_at":null,"warnings":[],"links":{"self":"/v1/reservations/reservation-13ecaf05df994aa1aeb0176956e7ad1e","confirm":"/v1/reservations/reservation-13ecaf05df994aa1aeb0176956e7ad1e:confirm","calendar":"/v1/clusters/main/calendar"}}');
CREATE TABLE snapshots (
	id VARCHAR NOT NULL, 
	created_at_s FLOAT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "snapshots" VALUES('snapshot-80a664e00d5ee945697bb5fff938119f',1.7956222900968456268e+09,'{"cluster":{"gpu_types":[{"name":"t4","memory_bytes":16000000000,"peak_flops_per_s":65000000000000.0,"intra_node_bandwidth_bytes_per_s":15750000000.0,"inter_node_bandwidth_bytes_per_s":6250000000.0},{"name":"a100","memory_bytes":40000000000,"peak_flops_per_s":312000000000000.0,"intra_node_bandwidth_bytes_per_s":300000000000.0,"inter_node_bandwidth_bytes_per_s":200000000000.0}],"nodes":[{"id":"t4-1","gpu_type":"t4","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"a100-1","gpu_type":"a100","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0},"jobs":[{"id":"resnet","min_gpus":1,"max_gpus":null,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":250.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":472.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":4,"value":893.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":1400.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":2640.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":4,"value":5000.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null},{"id":"bert","min_gpus":1,"max_gpus":null,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":9.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":17.5,"num_nodes":null},{"gpu_type":"t4","num_gpus":4,"value":34.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":95.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":184.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":4,"value":358.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null},{"id":"recommender","min_gpus":1,"max_gpus":2,"adaptivity":"elastic","gpu_types":null,"preemptible":true,"reservation":null,"weight":1.0,"current":null,"age_s":0.0,"num_restarts":0,"restart_cost_s":0.0,"performance":{"kind":"throughput_table","entries":[{"gpu_type":"t4","num_gpus":1,"value":30000.0,"num_nodes":null},{"gpu_type":"t4","num_gpus":2,"value":40000.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":1,"value":42000.0,"num_nodes":null},{"gpu_type":"a100","num_gpus":2,"value":56000.0,"num_nodes":null}],"batch_size":null},"parallelism":null,"transformer":null,"operators":null,"priority":1,"deadline_s":null,"remaining_iterations":null,"parallel_plan":null,"expansions":[],"calibration":null,"remaining_s":null,"queue":null,"attained_gpu_s":0.0,"attained_s":null,"lasting":null,"calendar_entry":null,"earliest_start_s":0.0,"latest_start_s":null,"user":null,"application":null,"time_limit_s":null,"running_s":null}],"taken_at":null,"calendar":[],"forecaster":null}');
CREATE TABLE taken_up_plans (
	plan_id VARCHAR NOT NULL, 
	times INTEGER NOT NULL, 
	PRIMARY KEY (plan_id)
);
CREATE INDEX ix_plans_status ON plans (status);
CREATE INDEX ix_comparisons_final ON comparisons (final);
CREATE INDEX ix_idempotency_keys_resource_id ON idempotency_keys (resource_id);
CREATE INDEX ix_forecasters_final ON forecasters (final);
CREATE INDEX ix_reservations_calendar ON reservations (calendar);
CREATE INDEX ix_replays_final ON replays (final);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('plans',4);
INSERT INTO "sqlite_sequence" VALUES('comparisons',1);
INSERT INTO "sqlite_sequence" VALUES('replays',1);
INSERT INTO "sqlite_sequence" VALUES('reservations',1);
INSERT INTO "sqlite_sequence" VALUES('calibrations',1);
INSERT INTO "sqlite_sequence" VALUES('forecasters',1);
COMMIT;
