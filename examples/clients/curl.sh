json='content-type: application/json'
asked='"messages": [{"role": "user", "content": "Lena has 27 red cups and 14 blue cups. How many cups does Lena have now?"}]'
curl -si -H "$json" -d "{$asked}" "$OPENAI_BASE_URL/chat/completions" | tee reply.txt
echo
curl -sN -H "$json" -d "{$asked, \"stream\": true}" "$OPENAI_BASE_URL/chat/completions" | tail -n 4
id=$(sed -n 's/^x-reasc-id: \([0-9a-f]*\).*/\1/p' reply.txt)
curl -s -H "$json" -d "{\"id\": \"$id\", \"correct\": true}" "${OPENAI_BASE_URL%/v1}/reasc/outcome"
