-- What a service of schema 0004 had made of the file of 0003 on 2026-11-26: the same content.
PRAGMA application_id = 1398034263;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES('0004');
CREATE TABLE bodies (
	hash VARCHAR NOT NULL, 
	num_bytes INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO bodies VALUES('80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8',3725,X'789ced57c172a3300cfd179fd90e1048dbfc4a67c723404dbc35c66b44db6ca7ffbe3204439aa64dd3bd74b6b921eb49cfd293084fa2d45d4be8c4ea49ac6d27696bb115ab9b2761a046b112948948d458376e2b8b2df9c364198fbf4858843b79ab1bdb4a8b4ef2f1328f67bf0bf651861c48d354280b30d583aa6833041b31497e99ef03d8fe1660994efecf51600b491c1ff0cde237f92e92f4e3841787887718a77b88e79f91f0de43ad55d557fa47c2dcc72e8cb5375d2dd9e6efd11fb65219d9b57c7ec3315a02f2ae9d65570bb49999a543681b2356a6d3da17a94fe34bf432d1ae6cff2a155b49a16b07875a19659b4a7ad3e01089b271f342dd3a2849797ce2db297e35c5ac300e5b8324fa483b7e093fc0e3ee610809155852f78ab60c410d2da97276cbe0671d62cd9e85e6cb90eb30f209d0ddc3c060f07a40b5de50cf87d976cea1a190698dbea17ddf7dc9184ee0c89bfa58fe41964d4bc18b2570dbb81a4c897ed0ee94e91bbe714db7ded88e2481a71309cee2d44e14c785c0b7bf07ddf1094fc1c862a7a6b1d7c7d169406797e987d159405f5d2fde471f286be29e64f109e40f024cf4d365764e80e90679fc3a03166d01546e64abfee0189425ef406bd4aaad4725f09630adefeca4ec867b0dd4b899de54e37a55f2d52b844a2bd3eb67387658030f88594b451ec91a9ca0bb8cd26a08cac447cb4907373f5e256855b83df14e3143a8df1d7618044cc4e758f982048d0663c0f43364d6616641a3a9c0492fd26da0034eb36259ebbdecc7689a97c2dc3838f32e0985026bb52af77893aa516a55ab19c475667e93b0c60a74df2be1b5b1bafec442482e2ff2b3f7c122fbd43ab8ce3fb50c92ab73d2cfd8e757dfabe06bae02876553d74c88231edd08e97fba0e16f19197dca9ff114ec3bf31d8597a5e848943befc7e517fb9e9f41f0170874602bd2436d483db81250c1f9f3de22f7c81f69f');
INSERT INTO bodies VALUES('0cabc740b319312f7b440c308ce86e65649aed2479cf518571c28e29e97fc715',93,X'789c3dc8410a80201000c0bfecd940494dfd4c6cba4b8168a89da2bf77898e3337f48267dfeb588f04e1d7e4245aab49ca6488bc36d62fdb6698d9cf4e29cf202062a692b0412857ce02b8368ad8077df3bc993a1ecf');
CREATE TABLE calendars (
	name VARCHAR NOT NULL, 
	version INTEGER NOT NULL, 
	updated_at_s FLOAT NOT NULL, 
	cluster TEXT NOT NULL, 
	entries TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO calendars VALUES('main',2,1795622309.9346237182,'{"gpu_types":[{"name":"t4","memory_bytes":16000000000,"peak_flops_per_s":65000000000000.0,"intra_node_bandwidth_bytes_per_s":15750000000.0,"inter_node_bandwidth_bytes_per_s":6250000000.0},{"name":"a100","memory_bytes":40000000000,"peak_flops_per_s":312000000000000.0,"intra_node_bandwidth_bytes_per_s":300000000000.0,"inter_node_bandwidth_bytes_per_s":200000000000.0}],"nodes":[{"id":"t4-1","gpu_type":"t4","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"a100-1","gpu_type":"a100","num_gpus":4,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0}','[{"name":"spine","kind":"maintenance","from_time":"2026-12-01T06:00:00Z","until_time":"2026-12-01T10:00:00Z","nodes":["t4-1"],"shape":null,"hard":true,"owner":null}]');
CREATE TABLE calibrations (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	document TEXT NOT NULL, 
	UNIQUE (name)
);
INSERT INTO calibrations VALUES(1,'site','{"name":"site","created_at":"2026-11-25T15:58:30.453927Z","source":"measurement 1: 20 s an iteration of PP4 DP4 TP1 (10+10+10+10 layers, 64 x 4) on h100","links":{"self":"/v1/calibrations/site"},"factors":[{"name":"computation","factor":1.1831679169615221,"deviation":0.06811132438275373},{"name":"memory","factor":1.0768044207458596,"deviation":0.18616095625475998},{"name":"launch","factor":1.0412553009425896,"deviation":0.5015705084856857},{"name":"link","factor":1.000927268812708,"deviation":0.1479992346193144},{"name":"network","factor":1.0000456411442282,"deviation":0.24999999890129132},{"name":"overlap","factor":1.0,"deviation":0.303}],"num_points":1,"gpu_type":"h100","calibration":{"gpus":{},"adjustment":{"computation":1.1831679169615221,"memory":1.0768044207458596,"launch":1.0412553009425896,"link":1.000927268812708,"network":1.0000456411442282,"overlap":1.0,"covariance":[[0.004639152509172703,-0.003282407298434594,-0.0017932685018233027,-0.00004111290120304712,-2.024512024375923e-6,0.0],[-0.003282407298434594,0.034655901633686655,-0.00078895026679938,-0.000018087661909000962,-8.906860852939465e-7,0.0],[-0.0017932685018233027,-0.00078895026679938,0.2515729749825894,-9.881782309133173e-6,-4.866060657772952e-7,0.0],[-0.00004111290120304712,-0.000018087661909000962,-9.881782309133173e-6,0.021903773447902876,-1.1156046674976189e-8,0.0],[-2.024512024375923e-6,-8.906860852939465e-7,-4.866060657772952e-7,-1.1156046674976189e-8,0.06249999945064567,0.0],[0.0,0.0,0.0,0.0,0.0,0.091809]],"residual":null,"num_points":1},"sizes":null,"measured_at_s":1795622310.0,"source":"measurement 1: 20 s an iteration of PP4 DP4 TP1 (10+10+10+10 layers, 64 x 4) on h100"},"measure_next":{"gpu_type":"h100","notation":"PP1 DP8 TP2 (40 layers, 32 x 8)","iteration_s":18.87924273292558,"iteration_low_s":15.705017583946713,"iteration_high_s":22.695027513566945,"expected_gain":0.021136898632220458,"rival":"PP8 DP2 TP1 (5+5+5+5+5+5+5+5 layers, 128 x 2)","detail":"predicted 1.1 % faster than PP8 DP2 TP1 (5+5+5+5+5+5+5+5 layers, 128 x 2), by a difference known to 11.2 %; measured, to 9.5 %. The choice is expected to become 2.1 % faster","plan":{"stages":[{"num_layers":40,"replicas":[{"node":"0","gpu_type":"h100","gpus":[0,1],"local_batch":1},{"node":"0","gpu_type":"h100","gpus":[2,3],"local_batch":1},{"node":"0","gpu_type":"h100","gpus":[4,5],"local_batch":1},{"node":"0","gpu_type":"h100","gpus":[6,7],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[0,1],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[2,3],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[4,5],"local_batch":1},{"node":"1","gpu_type":"h100","gpus":[6,7],"local_batch":1}],"checkpointing":null,"recomputed_layers":null}],"num_micro_batches":32,"virtual_stages":1,"schedule":"1f1b","context_parallel":1,"expert_parallel":1,"training":null}},"warnings":[],"input_hash":"sha256:90878871605f5bdac24d59b704e225b2c267c9829ea8d0ee650013de0fe6fadf","version":"0.1.0"}');
CREATE TABLE clusters (
	name VARCHAR NOT NULL, 
	version INTEGER NOT NULL, 
	updated_at_s FLOAT NOT NULL, 
	body_hash VARCHAR NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE comparisons (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	final BOOLEAN NOT NULL, 
	document TEXT NOT NULL, 
	UNIQUE (id)
);
INSERT INTO comparisons VALUES(1,'comparison-76ad6c2439f647809e24f89c1fe0c4e0',1,'{"id":"comparison-76ad6c2439f647809e24f89c1fe0c4e0","status":"succeeded","policy":"sia","solvers":["highs"],"times":{"queued":"2026-11-25T15:58:10.433481Z","running":"2026-11-25T15:58:10.437383Z","finished":"2026-11-25T15:58:11.302302Z"},"links":{"self":"/v1/solver-comparisons/comparison-76ad6c2439f647809e24f89c1fe0c4e0","figure":"/v1/solver-comparisons/comparison-76ad6c2439f647809e24f89c1fe0c4e0/figure.svg"},"instance":{"num_nodes":2,"num_gpus":8,"num_jobs":3},"options":{"time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0},"version":"0.1.0","runs":[{"solver":"highs","solver_used":{"name":"highs","version":"1.15.1"},"termination":{"reason":"optimal","limit":null},"sense":"minimize","objective":1.3949170654651162,"bound":1.394917065465116,"relative_gap":1.5918122333028705e-16,"proven_optimal":true,"verified":true,"certificate":"proven optimal by highs (1.15.1): HiGHS: Optimal","phases_ms":{"validate":0.5873950000250261,"performance":0.753353999925821,"build":3.8065739998955905,"solve":8.240999000008742,"place":0.635685000020203,"verify":0.4115870000305222},"phases_cpu_ms":{"validate":0.5825149999999502,"performance":0.7496270000000305,"build":3.7262850000000514,"solve":8.339524000000043,"place":0.6332599999999688,"verify":0.40892200000008927},"total_ms":14.435593999905905,"cpu_ms":14.588097999999938,"first_incumbent_ms":0.5509960000154024,"peak_memory_bytes":67895296,"size":{"num_columns":16,"num_rows":5,"num_nonzeros":32,"num_nodes":1},"history":[{"elapsed_ms":1.9600530000616345,"objective":1.5755248877183212,"bound":null},{"elapsed_ms":7.446266999977524,"objective":1.3949170654651162,"bound":0.5285825346634123},{"elapsed_ms":8.240999000008742,"objective":1.3949170654651162,"bound":1.394917065465116}],"failure":null}],"agreement":{"agree":null,"num_proven":1,"statement":"only highs proved its answer, and no other answer contradicts it","errors":[]},"longest_s":190.0,"input_hash":"sha256:7c1d8b26dc11d35e2f16a46d54b5b4994f40eb27ce489405597e2adf2826e9d6","failure":null}');
CREATE TABLE forecasters (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	final BOOLEAN NOT NULL, 
	document TEXT NOT NULL, 
	record TEXT, 
	report TEXT, 
	UNIQUE (name)
);
INSERT INTO forecasters VALUES(1,'short',1,'{"name":"short","status":"succeeded","history":"h","times":{"queued":"2026-11-25T15:58:58.252530Z","running":"2026-11-25T15:58:58.255465Z","finished":"2026-11-25T15:59:01.546170Z"},"links":{"self":"/v1/forecasters/short","report":"/v1/forecasters/short/report","record":"/v1/forecasters/short/record","figure":"/v1/forecasters/short/figure.svg","figure_png":"/v1/forecasters/short/figure.png"},"num_jobs":300,"time_limit_s":600.0,"input_hash":"sha256:fc64ec3b54f26e06ce7fa078c1de8fbd59bf16289d6041f27c1e536582b2417a","version":"0.1.0","digest":"6e25326ec6dc1975595485203c5c945fa1c7d434658c078a0c03a4fd0b83bca8","origin_s":1772323200.0,"trained_until_s":18230.0,"failure":null}','{"format": 1, "shortened": true}','{"num_learned": 240, "num_held_out": 30, "num_tested": 30, "num_running": 0, "left_out": {}, "scores": [{"predictor": "forecaster", "pinball": 0.017670572890009867, "pinball_min": 0.06812377372094727, "coverage_90": 0.8333333333333334, "rmse_classes": 0.0, "observed": [0.0, 0.03333333333333333, 0.1, 0.2, 0.2, 0.3, 0.43333333333333335, 0.6666666666666666, 0.7333333333333333, 0.8333333333333334, 0.9333333333333333, 0.9666666666666667, 1.0]}, {"predictor": "history", "pinball": 0.11408365787129683, "pinball_min": 0.47854123931623926, "coverage_90": 0.9, "rmse_classes": 0.0, "observed": [0.1, 0.2, 0.3, 0.36666666666666664, 0.43333333333333335, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0]}, {"predictor": "same group", "pinball": 0.11371195638021579, "pinball_min": 0.4768675427350427, "coverage_90": 0.9, "rmse_classes": 0.0, "observed": [0.1, 0.16666666666666666, 0.23333333333333334, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0]}, {"predictor": "last jobs", "pinball": 0.1115529524764345, "pinball_min": 0.46735032051282055, "coverage_90": 0.9, "rmse_classes": 0.0, "observed": [0.1, 0.1, 0.2, 0.3, 0.36666666666666664, 0.4666666666666667, 0.5666666666666667, 0.7, 0.8, 0.9, 0.9, 1.0, 1.0]}], "probabilities": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99], "covered": 0.9, "class_s": 600.0, "num_classes": 25}');
CREATE TABLE idempotency_keys (
	collection VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	input_hash VARCHAR NOT NULL, 
	resource_id VARCHAR NOT NULL, 
	PRIMARY KEY (collection, "key")
)
 WITHOUT ROWID

;
INSERT INTO idempotency_keys VALUES('/v1/solver-comparisons','c','sha256:7c1d8b26dc11d35e2f16a46d54b5b4994f40eb27ce489405597e2adf2826e9d6','comparison-76ad6c2439f647809e24f89c1fe0c4e0');
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
INSERT INTO measured_runs VALUES(1,'llm',1795621738147,'{"launch":1795621738147,"device":"cpu","transformer":{"global_batch":8,"micro_batch":null,"precision":"fp32","optimizer":null,"zero_stage":null,"software":null,"model":null,"config":null,"num_layers":4,"hidden_size":128,"vocabulary_size":1000,"sequence_length":64,"num_heads":null,"num_kv_heads":null,"head_size":null,"value_head_size":null,"rotary_head_size":null,"query_rank":null,"kv_rank":null,"query_key_norms":null,"attention_window":null,"global_attention_interval":null,"feed_forward_size":null,"gated":null,"normalisation":null,"post_norms":null,"biases":null,"positions":null,"tied_embeddings":null,"num_experts":null,"experts_per_token":null,"expert_interval":null,"first_dense_layers":null,"expert_feed_forward_size":null,"shared_expert_size":null,"capacity_factor":null,"checkpointing":null,"attention":null,"sequence_parallel":null},"plan":{"stages":[{"num_layers":2,"replicas":[{"node":"n0","gpu_type":"cpu","gpus":[0],"local_batch":4}],"checkpointing":null,"recomputed_layers":null},{"num_layers":2,"replicas":[{"node":"n0","gpu_type":"cpu","gpus":[1],"local_batch":4}],"checkpointing":null,"recomputed_layers":null}],"num_micro_batches":2,"virtual_stages":1,"schedule":"1f1b","context_parallel":1,"expert_parallel":1,"training":null},"cluster":{"gpu_types":[{"name":"cpu","memory_bytes":17179869184,"peak_flops_per_s":1000000000000.0,"intra_node_bandwidth_bytes_per_s":4000000000.0,"inter_node_bandwidth_bytes_per_s":1000000000.0}],"nodes":[{"id":"n0","gpu_type":"cpu","num_gpus":2,"gpus_in_use":[],"state":"up","path":[],"state_reason":null},{"id":"n1","gpu_type":"cpu","num_gpus":2,"gpus_in_use":[],"state":"up","path":[],"state_reason":null}],"tiers":[],"minipod_tier":null,"core_bandwidth_fraction":1.0},"own_program":false}',20,1,1795621739.1470000743,1795621748.4470000266);
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
INSERT INTO measured_steps VALUES(1,1,0,'n0',700000000,1795621739.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.9000000000000003552,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,1,1,'n0',700000001,1795621739.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.9000000000000003552,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,2,0,'n0',700000000,1795621740.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.7999999999999998223,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,2,1,'n0',700000001,1795621740.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.7999999999999998223,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,3,0,'n0',700000000,1795621741.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.7000000000000001776,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,3,1,'n0',700000001,1795621741.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.7000000000000001776,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,4,0,'n0',700000000,1795621742.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.5999999999999996447,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,4,1,'n0',700000001,1795621742.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.5999999999999996447,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,5,0,'n0',700000000,1795621743.1470000744,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.5,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,5,1,'n0',700000001,1795621743.1470000744,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.5,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,6,0,'n0',700000000,1795621744.1470000744,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.4000000000000003552,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,6,1,'n0',700000001,1795621744.1470000744,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.4000000000000003552,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,7,0,'n0',700000000,1795621745.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.2999999999999998223,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,7,1,'n0',700000001,1795621745.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.2999999999999998223,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,8,0,'n0',700000000,1795621746.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.2000000000000001776,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,8,1,'n0',700000001,1795621746.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.2000000000000001776,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,9,0,'n0',700000000,1795621747.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.0999999999999996447,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,9,1,'n0',700000001,1795621747.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.0999999999999996447,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,10,0,'n0',700000000,1795621748.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.0,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
INSERT INTO measured_steps VALUES(1,10,1,'n0',700000001,1795621748.1470000743,0.16000000000000000333,0.080000000000000001665,3.0,0.00029999999999999997371,0.0020000000000000000416,6.0,0.020000000000000000416,0.020000000000000000416,0.0,0.0010000000000000000208,3.0,0.29999999999999998889,1706.6666666666667424);
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
	request TEXT NOT NULL, 
	snapshot_hash VARCHAR NOT NULL, 
	input_hash VARCHAR NOT NULL, 
	options TEXT NOT NULL, 
	idempotency_key VARCHAR, 
	objective FLOAT, 
	bound FLOAT, 
	relative_gap FLOAT, 
	outcome BLOB, 
	timings TEXT NOT NULL, 
	failure TEXT, 
	events BLOB, 
	UNIQUE (id), 
	UNIQUE (idempotency_key)
);
INSERT INTO plans VALUES(1,'plan-3ab2ba6beaf743799935ca783a2c0c57','sia','succeeded',1795622289.6583061218,1795622289.6730508804,1795622289.6874787807,1795622289.7025055885,'0.1.0','{"policy":"sia","parameters":{"epsilon":0.05,"fairness_power":-0.5,"queue_penalty":1.1,"double_at_most":false,"restart_price":1.0,"price_suspension":false,"objective":"goodput","longest_wait_s":21600.0,"prices":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"}}','80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8','sha256:e80c13e46d6af225f366ae85e5560f1eef059760ae50683760890054c824c497','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}','first',1.3949170654651161793,1.3949170654651159573,1.5918122333028705498e-16,X'789ccd54db6a1b3110fd15a1a716366675d9f5dafd80e6bd8f212cb256b19568a54517a789f1bf7766630787b48142a0f58359cd7dce19ce81661347eb55b6c1d3f58146a3127ed130653b2a472beaec68335dfbe2dcb1a28f2a7aebb789ae6f6e2b9a8c4f06a2a104443d1b080f9b7ba3b3dd83992dc44aaed8b26e1bd9368cb5bca29b50fcf01b5705ad9dc2bc7eab260c6856ac639c0b216ade2debc65c61d414c3def8fe3cde3ac7622aba37d1de59339cdf49870803dc1ce6fd60c092adb3f909e6bb0f9bde4220f44bde64b0ec952b105c2f44bd5c422bbe94b2138275cdb1faa8c0c6c437e99ce38a2b21b9e04236cb8fb3a3d1611c8d1f4cbc2cd2b56dcd1b598b6527a5e8da23a0ac9c0b7aa628cd3bbd5f613b953e3f4d488562750d165fc61eac90c067774276d177c5a0465db15b2053ef94df6252ca2a66800ff1357b1b301c0907be54d6bb3e21b7270bcee2faf776a575198b9be7ec5336d36b0df37382933043bf0d61980a1c136f65bda8a19b8ab09c71fde4947f6da08ad7bb8b64e5d3697700232aff90cee77878c7c6df22c12bf14f91609dfc6420de1ed6051e59fe098d2cff8bab9035fc3e010d78160fa91a05019d0848f1569f64ee34d9cea857bfbf7356e7b3aacdf31f66ac747065c426283e6888e1115ecdcbc307ff6c620083e067cb60301a704cc1812ecd85d488780ec8cc14929dc798552bcd03d16bfbfdfa07610bd62c18450ae09841d06060cc7bd13c72d23cb279226f2a912f97e95fd744900dd0f19088f5f0ad9d4ac9a48a70a243991ca837c125be11465026c19377864054268f36ef086b49b8c3fff3eec8bfd5b8d6e178fc0550dc0ee3','{"accept_ms":29.21568700003263,"queue_ms":6.452294999917285,"phases_ms":{"validate":0.026038999976663035,"performance":0.8412380000208941,"build":3.309238000042569,"solve":16.289978000031624,"place":0.7130889999871215,"verify":0.8193070000288571},"cpu_ms":21.906647000000223,"first_incumbent_ms":0.5094800000051691,"total_ms":73.4151537053549}',NULL,X'789c9d91d10ac22014865f65781d43a7475daf12116e1ec230574dbb197bf7348256572be180fe9e4f3e8ebb89384bb615db54249833e62d19a3894872604d3439989e491acbdd3561424be67953bdc86625d925e7ad0bc725cb57b2e3e0ef5fa858a02ef4e9dc61881ff8d09db08fee5e5a580d0aa0115a2bc5346f58b1ee8614ca5321799f8f37f4a6b41f8ee6f24e737819d11e8a07ad29e51232aedabc80e75a28c18f4abc152d53548290c098fc5789092514705e9434a54a2f94e4da01a7be47b4cf9fdd3f0029b89c37');
INSERT INTO plans VALUES(2,'plan-747aa9b493b544df964f1311e199ccb3','gang','succeeded',1795622290.2683598995,1795622290.2775721549,1795622290.2834048271,1795622290.2842822074,'0.1.0','{"policy":"gang","parameters":{"epsilon":0.05,"order":"fifo","promotion_after_s":null,"priority_ratio":2.0,"backfill":"easy","default_remaining_s":null,"preemption":false,"service_thresholds":[3250.0,7200.0],"quotas":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"}}','0cabc740b319312f7b440c308ce86e65649aed2479cf518571c28e29e97fc715','sha256:32c06419b934b64b68c107ffe1b9e93d951f78aff64b7c84bc825b7d0a77c31d','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}',NULL,3.0,3.0,0.0,X'789cdd55cd6edb300c7e154197754096386d77711fa03d0e18761a0a839119478d4c19fa499a0679f7918e9336cd3620c32edb4912ff447ea43e6d75c2d05a82643de972ab0342949df65db22d383dd2ceb636e992b273bb915e43204b4dd4e5f7ad36be46b6cdb424bfa62a600b56b45564bfce5be2e8ac9f44822e2e7c9a3cf9599c149353c31a1358c776362af249357685a4e63ea81b250e254b67bede2803a466a8bae05b1bb156698136a8fb2fdfe24801f5e78d82806a066639b7ceb18d27b751eb05b2f4a8b63444fc10d51a3677fd8dcaa691e23bd94a7510a0454e5ed53887ecd2bbd222ae30d8b4e19c073cf46e7484c336e403d6d5dca2ab7f07c4f5a485e7aae9f2cf50c852e16ca31aa0665f1e2b5ea1990a347747ab68818d027957cb8a04c3f2c9ba6ea462b64b1896bd041dc464cddcf9f5c941b47fafc262d261e0745b20839717b9efff5995efab6b60856e58feb8ba47115394f2b82b3cf32f92b09f3da1499c902e6fc6c548cf7ca67ad8070e2caaaa814e978588783439f7eaf078ca14328eb45cc650d58773348c5eff80e4f5f185314148284872bd9565430e1e09134b56e0321b4fc78534e0d70e330c97980734be6d916a6edb8917e300ce79d353c2fe999f27c5335ba54d2760a55b3e536ef7735c4e7b65142e49b79fa6ec5f3c326d980577184f52e902aeac1753a116861692595451701f249285abcee5604c6eb3eb33ac62c2ee18039f3b6e174f66e37ddde57490cb83663a7055e7808ee1219359bc71058a43cd0c42005ac603ed6dcf70be0481e9ff85c0e9e85c02c4f5bf0f041f33b1ab91e72c4ac1229335c3173aa4b54038ea69eeac4943ac7df2db1e26e35d6ee592620f5bf0ebd703797ac1e0df0a6a3cb64347ef56c2b81c89bf2a4673813958e139dd134eecb3d1c598dfb416d4796c9984384d31def3941a784aa8f5e8aeae7a9f8fe5c0be6a6893fc9a3e70cff9979cab4279fe2843e4cdeb677ba77a7a9470b5cc48e7a31554d4d583bd7ff8aaa6e3e9e7f19423f72db746cad9ee763f00ec8df374','{"accept_ms":9.893917999988844,"queue_ms":7.183226999927683,"phases_ms":{"validate":0.02154100002371706,"decide":0.5804219999845373,"build":0.8580090000123164,"solve":1.2226589999499993,"place":0.16751199996178912,"verify":0.4971560000512909},"cpu_ms":3.4379960000001653,"first_incumbent_ms":0.0,"total_ms":25.816225968128492}',NULL,X'789c8d90c10ac2300c865f65f43c46757af1554446db8451e9d2699b5dc6de7ded10ac9e7a4bbe3f1f09b9afc282b835a7b611a4264ca50851451409808a2a81f5201c72f6626404b16d6df331cf95a666ebc0d258ba7da51bbc5bfed44ba15a323c69a4f8a37bfd4413ed9247fa4ea6487ba6ec123b97da373a95f36154f39726380784212f969d2c565e6baf656310e178d363075cfb6b94');
INSERT INTO plans VALUES(3,'plan-left-behind','sia','queued',1795622289.6583061218,NULL,NULL,NULL,'0.1.0','{"policy":"sia","parameters":{"epsilon":0.05,"fairness_power":-0.5,"queue_penalty":1.1,"double_at_most":false,"restart_price":1.0,"price_suspension":false,"objective":"goodput","longest_wait_s":21600.0,"prices":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"}}','80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8','sha256:e80c13e46d6af225f366ae85e5560f1eef059760ae50683760890054c824c497','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}','second',NULL,NULL,NULL,NULL,'{"accept_ms":29.21568700003263,"queue_ms":6.452294999917285,"phases_ms":{"validate":0.026038999976663035,"performance":0.8412380000208941,"build":3.309238000042569,"solve":16.289978000031624,"place":0.7130889999871215,"verify":0.8193070000288571},"cpu_ms":21.906647000000223,"first_incumbent_ms":0.5094800000051691,"total_ms":73.4151537053549}',NULL,NULL);
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
INSERT INTO replay_results VALUES('replays-bc14ad1b40b74a00b75eee1e4fa3b083',0,'{"policy":"gang","parameters":{},"seed":0,"status":"succeeded","num_ended":2,"now_s":150.0,"elapsed_s":0.1735390640000105,"figures":{"trace":"four","policy":"gang","parameters":{},"seed":0,"num_gpus":8,"horizon_s":null,"num_jobs":2,"num_finished":2,"num_left_out":0,"completion_s":{"mean":120.0,"median":120.0,"p95":138.0,"p99":139.6,"most":140.0},"weighted_completion_s":126.66666666666667,"floor_completion_s":75.0,"waited_s":{"mean":45.0,"median":45.0,"p95":85.5,"p99":89.1,"most":90.0},"makespan_s":150.0,"utilisation":0.6666666666666666,"gpu_hours":0.2222222222222222,"restarts":{},"failures":0,"num_deadlines":0,"num_deadlines_met":0,"most_unfair":1.7043478260869567,"unfair_share":0.5,"decisions":{"num_planned":2,"num_skipped":2,"total_cpu_s":0.16705758199999998,"cpu_s":{"mean":0.08352879099999999,"median":0.08352879099999999,"p95":0.15464587750000003,"p99":0.16096739630000004,"most":0.16254777600000003}},"other_cpu_s":0.0029425130000000355,"stopped_s":null},"failure":null}','{"trace": "four", "policy": "gang", "parameters": {}, "seed": 0, "num_gpus": 8, "horizon_s": null, "num_jobs": 2, "num_finished": 2, "num_left_out": 0, "completion_s": {"mean": 120.0, "median": 120.0, "p95": 138.0, "p99": 139.6, "most": 140.0}, "weighted_completion_s": 126.66666666666667, "floor_completion_s": 75.0, "waited_s": {"mean": 45.0, "median": 45.0, "p95": 85.5, "p99": 89.1, "most": 90.0}, "makespan_s": 150.0, "utilisation": 0.6666666666666666, "gpu_hours": 0.2222222222222222, "restarts": {}, "failures": 0, "num_deadlines": 0, "num_deadlines_met": 0, "most_unfair": 1.7043478260869567, "unfair_share": 0.5, "decisions": {"num_planned": 2, "num_skipped": 2, "total_cpu_s": 0.16705758199999998, "cpu_s": {"mean": 0.08352879099999999, "median": 0.08352879099999999, "p95": 0.15464587750000003, "p99": 0.16096739630000004, "most": 0.16254777600000003}}, "other_cpu_s": 0.0029425130000000355, "jobs": [{"id": "a", "num_gpus": 4, "submitted_s": 0.0, "started_s": 0.0, "ended_s": 100.0, "completion_s": 100.0, "waited_s": 0.0, "restarts": {}, "num_failures": 0, "gpu_s": 400.0, "alone_s": 100.0, "met_deadline": null, "unfairness": 1.0, "spans": [{"start_s": 0.0, "end_s": 100.0, "gpus": [{"node": "a100-0", "gpus": [0, 1, 2, 3]}]}]}, {"id": "b", "num_gpus": 8, "submitted_s": 10.0, "started_s": 100.0, "ended_s": 150.0, "completion_s": 140.0, "waited_s": 90.0, "restarts": {}, "num_failures": 0, "gpu_s": 400.0, "alone_s": 50.0, "met_deadline": null, "unfairness": 1.7043478260869567, "spans": [{"start_s": 100.0, "end_s": 150.0, "gpus": [{"node": "a100-0", "gpus": [0, 1, 2, 3, 4, 5, 6, 7]}]}]}], "stopped_s": null}');
CREATE TABLE replays (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	final BOOLEAN NOT NULL, 
	document TEXT NOT NULL, 
	cluster TEXT NOT NULL, 
	events TEXT, 
	UNIQUE (id)
);
INSERT INTO replays VALUES(1,'replays-bc14ad1b40b74a00b75eee1e4fa3b083',1,'{"id":"replays-bc14ad1b40b74a00b75eee1e4fa3b083","status":"succeeded","trace":"four","policies":["gang"],"seeds":[0],"times":{"queued":"2026-11-25T15:58:28.582211Z","running":"2026-11-25T15:58:28.585938Z","finished":"2026-11-25T15:58:29.556924Z"},"links":{"self":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083","events":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/events","report":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/report","figure":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/figure.svg","figure_png":"/v1/replays/replays-bc14ad1b40b74a00b75eee1e4fa3b083/figure.png"},"num_gpus":8,"num_jobs":2,"num_left_out":0,"time_limit_s":600.0,"longest_s":1326.0,"input_hash":"sha256:e2b07902ceb71291989c287e292cf1c980357336aa1c383e089cf4bd0786fbe2","version":"0.1.0","progress":{"num_jobs":2,"num_ended":2,"num_replays":1,"num_done":1},"replays":[{"policy":"gang","parameters":{},"seed":0,"status":"succeeded","num_ended":2,"now_s":150.0,"elapsed_s":0.1735390640000105,"figures":{"trace":"four","policy":"gang","parameters":{},"seed":0,"num_gpus":8,"horizon_s":null,"num_jobs":2,"num_finished":2,"num_left_out":0,"completion_s":{"mean":120.0,"median":120.0,"p95":138.0,"p99":139.6,"most":140.0},"weighted_completion_s":126.66666666666667,"floor_completion_s":75.0,"waited_s":{"mean":45.0,"median":45.0,"p95":85.5,"p99":89.1,"most":90.0},"makespan_s":150.0,"utilisation":0.6666666666666666,"gpu_hours":0.2222222222222222,"restarts":{},"failures":0,"num_deadlines":0,"num_deadlines_met":0,"most_unfair":1.7043478260869567,"unfair_share":0.5,"decisions":{"num_planned":2,"num_skipped":2,"total_cpu_s":0.16705758199999998,"cpu_s":{"mean":0.08352879099999999,"median":0.08352879099999999,"p95":0.15464587750000003,"p99":0.16096739630000004,"most":0.16254777600000003}},"other_cpu_s":0.0029425130000000355,"stopped_s":null},"failure":null}],"failure":null}','{"gpu_types": [{"name": "a100", "memory_bytes": 80000000000, "peak_flops_per_s": 312000000000000.0, "intra_node_bandwidth_bytes_per_s": 300000000000.0, "inter_node_bandwidth_bytes_per_s": 25000000000.0}], "nodes": [{"id": "a100-0", "gpu_type": "a100", "num_gpus": 8, "gpus_in_use": [], "state": "up", "path": [], "state_reason": null}], "tiers": [], "minipod_tier": null, "core_bandwidth_fraction": 1.0}','[{"id": 1, "name": "state", "data": {"status": "queued", "replay": null}}, {"id": 2, "name": "state", "data": {"status": "running", "replay": null}}, {"id": 3, "name": "state", "data": {"status": "running", "replay": 0}}, {"id": 4, "name": "progress", "data": {"replay": 0, "num_jobs": 2, "num_ended": 0, "now_s": 0.0, "elapsed_s": 0.166050278000057}}, {"id": 5, "name": "state", "data": {"status": "succeeded", "replay": 0}}, {"id": 6, "name": "state", "data": {"status": "succeeded", "replay": null}}]');
CREATE TABLE reservations (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	calendar VARCHAR NOT NULL, 
	holds INTEGER NOT NULL, 
	until_s FLOAT, 
	document TEXT NOT NULL, 
	UNIQUE (id)
);
INSERT INTO reservations VALUES(1,'reservation-13ecaf05df994aa1aeb0176956e7ad1e','main',1,1799222400.0,'{"id":"reservation-13ecaf05df994aa1aeb0176956e7ad1e","cluster":"main","status":"confirmed","entry":{"name":"r","kind":"reservation","from_time":"2026-12-07T09:00:00+01:00","until_time":"2027-01-06T09:00:00+01:00","nodes":["a100-1"],"shape":null,"hard":true,"owner":null},"plan_id":null,"job_id":null,"created_at":"2026-11-25T15:58:29.744684Z","confirmed_at":"2026-11-25T15:58:29.934624Z","canceled_at":null,"warnings":[],"links":{"self":"/v1/reservations/reservation-13ecaf05df994aa1aeb0176956e7ad1e","confirm":"/v1/reservations/reservation-13ecaf05df994aa1aeb0176956e7ad1e:confirm","calendar":"/v1/clusters/main/calendar"}}');
CREATE TABLE snapshots (
	id VARCHAR NOT NULL, 
	created_at_s FLOAT NOT NULL, 
	body_hash VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO snapshots VALUES('snapshot-80a664e00d5ee945697bb5fff938119f',1795622290.0968456268,'80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8');
CREATE TABLE tokens (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	client VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	hash VARCHAR NOT NULL, 
	created_at_s FLOAT NOT NULL, 
	expires_at_s FLOAT, 
	revoked_at_s FLOAT, 
	UNIQUE (id), 
	UNIQUE (hash)
);
CREATE TABLE audit (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at_s FLOAT NOT NULL, 
	client VARCHAR, 
	role VARCHAR, 
	action VARCHAR NOT NULL, 
	resource VARCHAR NOT NULL, 
	created VARCHAR, 
	request_id VARCHAR NOT NULL, 
	status INTEGER
);
CREATE TABLE leases (
	resource_id VARCHAR NOT NULL, 
	collection VARCHAR NOT NULL, 
	owner VARCHAR NOT NULL, 
	epoch INTEGER NOT NULL, 
	since_s FLOAT NOT NULL, 
	wants_end BOOLEAN NOT NULL, 
	client VARCHAR, 
	due_s FLOAT, 
	is_begun BOOLEAN NOT NULL, 
	times_taken_up INTEGER NOT NULL, 
	times_begun_again INTEGER NOT NULL, 
	PRIMARY KEY (resource_id)
);
INSERT INTO leases VALUES('plan-left-behind','plans','',1,0.0,0,NULL,NULL,0,0,0);
CREATE TABLE instances (
	id VARCHAR NOT NULL, 
	seen_at_s FLOAT NOT NULL, 
	room INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE plan_events (
	plan_id VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	event TEXT NOT NULL, 
	PRIMARY KEY (plan_id, number)
)
 WITHOUT ROWID

;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('plans',4);
INSERT INTO sqlite_sequence VALUES('comparisons',1);
INSERT INTO sqlite_sequence VALUES('replays',1);
INSERT INTO sqlite_sequence VALUES('reservations',1);
INSERT INTO sqlite_sequence VALUES('calibrations',1);
INSERT INTO sqlite_sequence VALUES('forecasters',1);
CREATE INDEX ix_comparisons_final ON comparisons (final);
CREATE INDEX ix_idempotency_keys_resource_id ON idempotency_keys (resource_id);
CREATE INDEX ix_forecasters_final ON forecasters (final);
CREATE INDEX ix_reservations_calendar ON reservations (calendar);
CREATE INDEX ix_replays_final ON replays (final);
CREATE INDEX ix_plans_status ON plans (status);
CREATE INDEX ix_plans_snapshot_hash ON plans (snapshot_hash);
CREATE INDEX ix_plans_finished_at_s ON plans (finished_at_s);
CREATE INDEX ix_clusters_body_hash ON clusters (body_hash);
CREATE INDEX ix_snapshots_body_hash ON snapshots (body_hash);
CREATE INDEX ix_audit_at_s ON audit (at_s);
CREATE INDEX ix_leases_owner ON leases (owner);
COMMIT;
