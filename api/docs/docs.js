// Swagger UI on the document of this service; deep links, and no validator of somebody else.
SwaggerUIBundle({
  url: "../openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "none",
  validatorUrl: null,
});
