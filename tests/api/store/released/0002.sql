-- What a service of schema 0002 had made of the file of 0001 on 2026-11-25: the same content.
PRAGMA application_id = 1398034263;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0002');
CREATE TABLE bodies (
	hash VARCHAR NOT NULL, 
	num_bytes INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "bodies" VALUES('80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8',3725,X'789CED57C172A3300CFD179FD90E1048DBFC4A67C723404DBC35C66B44DB6CA7FFBE3204439AA64DD3BD74B6B921EB49CFD293084FA2D45D4BE8C4EA49AC6D27696BB115AB9B2761A046B112948948D458376E2B8B2DF9C364198FBF4858843B79AB1BDB4A8B4EF2F1328F67BF0BF651861C48D354280B30D583AA6833041B31497E99EF03D8FE1660994EFECF51600B491C1FF0CDE237F92E92F4E3841787887718A77B88E79F91F0DE43AD55D557FA47C2DCC72E8CB5375D2DD9E6EFD11FB65219D9B57C7EC3315A02F2AE9D65570BB49999A543681B2356A6D3DA17A94FE34BF432D1AE6CFF2A155B49A16B07875A19659B4A7AD3E01089B271F342DD3A2849797CE2DB297E35C5AC300E5B8324FA483B7E093FC0E3EE610809155852F78AB60C410D2DA97276CBE0671D62CD9E85E6CB90EB30F209D0DDC3C060F07A40B5DE50CF87D976CEA1A190698DBEA17DDF7DC9184EE0C89BFA58FE41964D4BC18B2570DBB81A4C897ED0EE94E91BBE714DB7DED88E2481A71309CEE2D44E14C785C0B7BF07DDF1094FC1C862A7A6B1D7C7D169406797E987D159405F5D2FDE471F286BE29E64F109E40F024CF4D365764E80E90679FC3A03166D01546E64ABFEE0189425EF406BD4AAAD4725F09630ADEFECA4EC867B0DD4B899DE54E37A55F2D52B844A2BD3EB67387658030F88594B451EC91A9CA0BB8CD26A08CAC447CB4907373F5E256855B83DF14E3143A8DF1D7618044CC4E758F982048D0663C0F43364D6616641A3A9C0492FD26DA0034EB36259EBBDECC7689A97C2DC3838F32E0985026BB52AF77893AA516A55AB19C475667E93B0C60A74DF2BE1B5B1BAFEC442482E2FF2B3F7C122FBD43AB8CE3FB50C92AB73D2CFD8E757DFABE06BAE02876553D74C88231EDD08E97FBA0E16F19197DCA9FF114EC3BF31D8597A5E848943BEFC7E517FB9E9F41F0170874602BD2436D483DB81250C1F9F3DE22F7C81F69F');
INSERT INTO "bodies" VALUES('0cabc740b319312f7b440c308ce86e65649aed2479cf518571c28e29e97fc715',93,X'789C3DC8410A80201000C0BFECD940494DFD4C6CBA4B8168A89DA2BF77898E3337F48267DFEB588F04E1D7E4245AAB49CA6488BC36D62FDB6698D9CF4E29CF202062A692B0412857CE02B8368AD8077DF3BC993A1ECF');
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
INSERT INTO "plans" VALUES(1,'plan-3ab2ba6beaf743799935ca783a2c0c57','sia','succeeded',1.79562228965830612183e+09,1.79562228967305088046e+09,1.79562228968747878074e+09,1.79562228970250558853e+09,'0.1.0','{"policy":"sia","parameters":{"epsilon":0.05,"fairness_power":-0.5,"queue_penalty":1.1,"double_at_most":false,"restart_price":1.0,"price_suspension":false,"objective":"goodput","longest_wait_s":21600.0,"prices":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"}}','80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8','sha256:e80c13e46d6af225f366ae85e5560f1eef059760ae50683760890054c824c497','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}','first',1.39491706546511617936e+00,1.39491706546511595732e+00,1.59181223330287054985e-16,X'789CCD54DB6A1B3110FD15A1A716366675D9F5DAFD80E6BD8F212CB256B19568A54517A789F1BF7766630787B48142A0F58359CD7DCE19CE81661347EB55B6C1D3F58146A3127ED130653B2A472BEAEC68335DFBE2DCB1A28F2A7AEBB789AE6F6E2B9A8C4F06A2A104443D1B080F9B7BA3B3DD83992DC44AAED8B26E1BD9368CB5BCA29B50FCF01B5705AD9DC2BC7EAB260C6856AC639C0B216ADE2DEBC65C61D414C3DEF8FE3CDE3AC7622ABA37D1DE59339CDF49870803DC1CE6FD60C092ADB3F909E6BB0F9BDE4220F44BDE64B0EC952B105C2F44BD5C422BBE94B2138275CDB1FAA8C0C6C437E99CE38A2B21B9E04236CB8FB3A3D1611C8D1F4CBC2CD2B56DCD1B598B6527A5E8DA23A0AC9C0B7AA628CD3BBD5F613B953E3F4D488562750D165FC61EAC90C067774276D177C5A0465DB15B2053EF94DF6252CA2A66800FF1357B1B301C0907BE54D6BB3E21B7270BCEE2FAF776A575198B9BE7EC5336D36B0DF37382933043BF0D61980A1C136F65BDA8A19B8AB09C71FDE4947F6DA08AD7BB8B64E5D3697700232AFF90CEE77878C7C6DF22C12BF14F91609DFC6420DE1ED6051E59FE098D2CFF8BAB9035FC3E010D78160FA91A05019D0848F1569F64EE34D9CEA857BFBF7356E7B3AACDF31F66AC747065C426283E6888E1115ECDCBC307FF6C620083E067CB60301A704CC1812ECD85D488780EC8CC14929DC798552BCD03D16BFBFDFA07610BD62C18450AE09841D06060CC7BD13C72D23CB279226F2A912F97E95FD744900DD0F19088F5F0AD9D4AC9A48A70A243991CA837C125BE11465026C19377864054268F36EF086B49B8C3FFF3EEC8BFD5B8D6E178FC0550DC0EE3','{"accept_ms":29.21568700003263,"queue_ms":6.452294999917285,"phases_ms":{"validate":0.026038999976663035,"performance":0.8412380000208941,"build":3.309238000042569,"solve":16.289978000031624,"place":0.7130889999871215,"verify":0.8193070000288571},"cpu_ms":21.906647000000223,"first_incumbent_ms":0.5094800000051691,"total_ms":73.4151537053549}',NULL,X'789C9D91D10AC22014865F65781D43A7475DAF12116E1EC230574DBB197BF7348256572BE180FE9E4F3E8EBB89384BB615DB54249833E62D19A3894872604D3439989E491ACBDD3561424BE67953BDC86625D925E7AD0BC725CB57B2E3E0EF5FA858A02EF4E9DC61881FF8D09DB08FEE5E5A580D0AA0115A2BC5346F58B1EE8614CA5321799F8F37F4A6B41F8EE6F24E737819D11E8A07AD29E51232AEDABC80E75A28C18F4ABC152D53548290C098FC5789092514705E9434A54A2F94E4DA01A7BE47B4CF9FDD3F0029B89C37');
INSERT INTO "plans" VALUES(2,'plan-747aa9b493b544df964f1311e199ccb3','gang','succeeded',1795622290.26836,1.79562229027757215495e+09,1.7956222902834048271e+09,1.79562229028428220747e+09,'0.1.0','{"policy":"gang","parameters":{"epsilon":0.05,"order":"fifo","promotion_after_s":null,"priority_ratio":2.0,"backfill":"easy","default_remaining_s":null,"preemption":false,"service_thresholds":[3250.0,7200.0],"quotas":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"}}','0cabc740b319312f7b440c308ce86e65649aed2479cf518571c28e29e97fc715','sha256:32c06419b934b64b68c107ffe1b9e93d951f78aff64b7c84bc825b7d0a77c31d','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}',NULL,3.0,3.0,0.0,X'789CDD55CD6EDB300C7E154197754096386D77711FA03D0E18761A0A839119478D4C19FA499A0679F7918E9336CD3620C32EDB4912FF447EA43E6D75C2D05A82643DE972AB0342949DF65DB22D383DD2CEB636E992B273BB915E43204B4DD4E5F7AD36BE46B6CDB424BFA62A600B56B45564BFCE5BE2E8AC9F44822E2E7C9A3CF9599C149353C31A1358C776362AF249357685A4E63EA81B250E254B67BEDE2803A466A8BAE05B1BB156698136A8FB2FDFE24801F5E78D82806A066639B7CEB18D27B751EB05B2F4A8B63444FC10D51A3677FD8DCAA691E23BD94A7510A0454E5ED53887ECD2BBD222AE30D8B4E19C073CF46E7484C336E403D6D5DCA2AB7F07C4F5A485E7AAE9F2CF50C852E16CA31AA0665F1E2B5EA1990A347747AB68818D027957CB8A04C3F2C9BA6EA462B64B1896BD041DC464CDDCF9F5C941B47FAFC262D261E0745B20839717B9EFFF5995EFAB6B60856E58FEB8BA47115394F2B82B3CF32F92B09F3DA1499C902E6FC6C548CF7CA67AD8070E2CAAAA814E978588783439F7EAF078CA14328EB45CC650D58773348C5EFF80E4F5F185314148284872BD9565430E1E09134B56E0321B4FC78534E0D70E330C97980734BE6D916A6EDB8917E300CE79D353C2FE999F27C5335BA54D2760A55B3E536EF7735C4E7B65142E49B79FA6EC5F3C326D980577184F52E902AEAC1753A116861692595451701F249285ABCEE5604C6EB3EB33AC62C2EE18039F3B6E174F66E37DDDE57490CB83663A7055E7808EE1219359BC71058A43CD0C42005AC603ED6DCF70BE0481E9FF85C0E9E85C02C4F5BF0F041F33B1AB91E72C4AC1229335C3173AA4B54038EA69EEAC4943AC7DF2DB1E26E35D6EE592620F5BF0EBD703797AC1E0DF0A6A3CB64347EF56C2B81C89BF2A4673813958E139DD134EECB3D1C598DFB416D4796C9984384D31DEF3941A784AA8F5E8AEAE7A9F8FE5C0BE6A6893FC9A3E70CFF9979CAB4279FE2843E4CDEB677BA77A7A9470B5CC48E7A31554D4D583BD7FF8AAA6E3E9E7F19423F72DB746CAD9EE763F00EC8DF374','{"accept_ms":9.893917999988844,"queue_ms":7.183226999927683,"phases_ms":{"validate":0.02154100002371706,"decide":0.5804219999845373,"build":0.8580090000123164,"solve":1.2226589999499993,"place":0.16751199996178912,"verify":0.4971560000512909},"cpu_ms":3.4379960000001653,"first_incumbent_ms":0.0,"total_ms":25.816225968128492}',NULL,X'789C8D90C10AC2300C865F65F43C46757AF1554446DB8451E9D2699B5DC6DE7DED10AC9E7A4BBE3F1F09B9AFC282B835A7B611A4264CA50851451409808A2A81F5201C72F6626404B16D6DF331CF95A666EBC0D258BA7DA51BBC5BFED44BA15A323C69A4F8A37BFD4413ED9247FA4EA6487BA6EC123B97DA373A95F36154F39726380784212F969D2C565E6BAF656310E178D363075CFB6B94');
INSERT INTO "plans" VALUES(3,'plan-left-behind','sia','queued',1.79562228965830612183e+09,NULL,NULL,NULL,'0.1.0','{"policy":"sia","parameters":{"epsilon":0.05,"fairness_power":-0.5,"queue_penalty":1.1,"double_at_most":false,"restart_price":1.0,"price_suspension":false,"objective":"goodput","longest_wait_s":21600.0,"prices":{}},"options":{"time_limit_s":null,"relative_gap":0.0001,"threads":1,"seed":0,"solver":"auto"}}','80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8','sha256:e80c13e46d6af225f366ae85e5560f1eef059760ae50683760890054c824c497','{"solver":"auto","time_limit_s":60.0,"relative_gap":0.0001,"threads":1,"seed":0}','second',NULL,NULL,NULL,NULL,'{"accept_ms":29.21568700003263,"queue_ms":6.452294999917285,"phases_ms":{"validate":0.026038999976663035,"performance":0.8412380000208941,"build":3.309238000042569,"solve":16.289978000031624,"place":0.7130889999871215,"verify":0.8193070000288571},"cpu_ms":21.906647000000223,"first_incumbent_ms":0.5094800000051691,"total_ms":73.4151537053549}',NULL,NULL);
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
	body_hash VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "snapshots" VALUES('snapshot-80a664e00d5ee945697bb5fff938119f',1.7956222900968456268e+09,'80a664e00d5ee945697bb5fff938119f0d0c5914350d5e8606933666bcb1aee8');
CREATE TABLE taken_up_plans (
	plan_id VARCHAR NOT NULL, 
	times INTEGER NOT NULL, 
	PRIMARY KEY (plan_id)
);
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('plans',4);
INSERT INTO "sqlite_sequence" VALUES('comparisons',1);
INSERT INTO "sqlite_sequence" VALUES('replays',1);
INSERT INTO "sqlite_sequence" VALUES('reservations',1);
INSERT INTO "sqlite_sequence" VALUES('calibrations',1);
INSERT INTO "sqlite_sequence" VALUES('forecasters',1);
COMMIT;
